#include "learner/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adam.h>
#include <torch/types.h>

#include <cmath>
#include <limits>
#include <vector>

namespace gristmill {
namespace {

TEST(Adam, takes_first_steps_worked_out_by_hand) {
  // g = 2, beta1 = 0.9, beta2 = 0.99, epsilon = 0, rate 0.1, no clipping.
  //   step 1: m = 0.2, v = 0.04; m/(1-0.9) = 2, v/(1-0.99) = 4: p = 1 - 0.1 * 2/2 = 0.9
  //   g = 0, step 2: m = 0.18, v = 0.0396; m/0.19 = 0.947368, v/0.0199 = 1.989950, root 1.410656:
  //           p = 0.9 - 0.1 * 0.671580 = 0.832842
  Adam adam(1, {.beta1 = 0.9, .beta2 = 0.99, .epsilon = 0, .max_grad_norm = 0});
  std::vector<float> p = {1};
  EXPECT_TRUE(adam.step(p, std::vector<float>{2}, 0.1).applied);
  EXPECT_NEAR(p[0], 0.9, 1e-6);
  adam.step(p, std::vector<float>{0}, 0.1);
  EXPECT_NEAR(p[0], 0.832842, 1e-6);
  EXPECT_NEAR(adam.first_moment()[0], 0.18, 1e-7);
  EXPECT_NEAR(adam.second_moment()[0], 0.0396, 1e-7);
  EXPECT_EQ(adam.steps(), 2);
}

TEST(Adam, follows_torchs_adam_with_clipping_over_many_steps) {
  torch::manual_seed(1);
  constexpr std::int64_t kCount = 1003;
  torch::Tensor theirs = torch::randn({kCount}, torch::kFloat64).requires_grad_(true);
  std::vector<float> ours(kCount);
  for (std::int64_t i = 0; i < kCount; ++i) ours[static_cast<std::size_t>(i)] = theirs[i].item<float>();
  torch::optim::Adam reference({theirs}, torch::optim::AdamOptions(3e-3).betas({0.9, 0.999}).eps(1e-5));
  Adam adam(kCount, {.beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-5, .max_grad_norm = 20});
  for (int step = 0; step < 100; ++step) {
    // Norms around 32 and around 3: some clipped, some not.
    const torch::Tensor gradient = torch::randn({kCount}) * (step % 2 == 0 ? 1.0 : 0.1);
    theirs.mutable_grad() = gradient.to(torch::kFloat64);
    const double norm = torch::nn::utils::clip_grad_norm_({theirs}, 20);
    reference.step();
    const auto result = adam.step(ours, {gradient.data_ptr<float>(), kCount}, 3e-3);
    ASSERT_NEAR(result.grad_norm, norm, 1e-5 * norm);
  }
  const auto* expected = theirs.data_ptr<double>();
  for (std::size_t i = 0; i < kCount; ++i) ASSERT_NEAR(ours[i], expected[i], 2e-5) << i;
}

TEST(Adam, reports_a_gradient_that_is_not_finite_and_changes_nothing) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Adam adam(100, {});
    std::vector<float> p(100, 1.0f), gradient(100, 0.1f);
    adam.step(p, gradient, 0.1);
    const std::vector<float> before = p;
    const std::vector<float> m(adam.first_moment().begin(), adam.first_moment().end());
    gradient[57] = bad;
    const Adam::Step step = adam.step(p, gradient, 0.1);
    EXPECT_FALSE(step.applied);
    EXPECT_FALSE(std::isfinite(step.grad_norm));
    EXPECT_EQ(p, before);
    EXPECT_THAT(adam.first_moment(), ::testing::ElementsAreArray(m));
    EXPECT_EQ(adam.steps(), 1);
  }
}

TEST(Adam, continues_from_its_restored_state_as_if_it_had_not_stopped) {
  std::vector<float> gradient(50, 0.3f), p(50, 1.0f);
  Adam first(50, {});
  for (int i = 0; i < 5; ++i) first.step(p, gradient, 0.01);
  Adam second(50, {});
  second.restore(first.first_moment(), first.second_moment(), first.steps());
  std::vector<float> q = p;
  for (int i = 0; i < 5; ++i) {
    gradient[3] = static_cast<float>(i);
    first.step(p, gradient, 0.01);
    second.step(q, gradient, 0.01);
  }
  EXPECT_EQ(p, q);
}

TEST(Adam, names_a_size_that_does_not_fit) {
  Adam adam(3, {});
  std::vector<float> three(3), two(2);
  EXPECT_THROW(adam.step(two, three, 0.1), std::invalid_argument);
  EXPECT_THROW(adam.step(three, two, 0.1), std::invalid_argument);
  EXPECT_THROW(adam.restore(two, three, 0), std::invalid_argument);
  EXPECT_THROW(adam.restore(three, three, -1), std::invalid_argument);
}

TEST(GlobalNorm, does_not_overflow_where_the_squares_do) {
  EXPECT_NEAR(global_norm(std::vector<float>{3e30f, 4e30f}), 5e30, 1e24);
  EXPECT_EQ(global_norm({}), 0);
}

TEST(Schedule, stays_or_falls_linearly_to_zero) {
  EXPECT_EQ(scheduled(Schedule::kConstant, 0.4, 0.75), 0.4);
  EXPECT_DOUBLE_EQ(scheduled(Schedule::kLinear, 0.4, 0.75), 0.1);
  EXPECT_EQ(scheduled(Schedule::kLinear, 0.4, 1.5), 0);
  EXPECT_EQ(scheduled(Schedule::kLinear, 0.4, -1), 0.4);
  EXPECT_EQ(schedule_from_name("linear"), Schedule::kLinear);
  EXPECT_EQ(schedule_from_name("constant"), Schedule::kConstant);
  EXPECT_THROW(schedule_from_name("cosine"), std::invalid_argument);
}

}  // namespace
}  // namespace gristmill
