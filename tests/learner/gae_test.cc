#include "learner/gae.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/learner/returns_reference.h"

namespace gristmill {
namespace {

using ::testing::FloatNear;
using ::testing::Pointwise;

struct Outcome {
  std::vector<float> returns, advantages;
};

Outcome run(const Trajectories& t, const GaeOptions& options) {
  Outcome result{std::vector<float>(t.rewards.size()), std::vector<float>(t.rewards.size())};
  gae(t.rows(), options, result.returns, result.advantages);
  return result;
}

TEST(Gae, matches_values_worked_out_by_hand) {
  //   delta_2 = 2 + 0.5*4 - 3 = 1      A_2 = 1
  //   delta_1 = 0 + 0.5*3 - 2 = -0.5   A_1 = -0.5 + 0.25*1     = -0.25
  //   delta_0 = 1 + 0.5*2 - 1 = 1      A_0 = 1 + 0.25*(-0.25)  = 0.9375
  const Outcome result = run(three_steps(), {.gamma = 0.5, .lambda = 0.5});
  EXPECT_THAT(result.advantages, Pointwise(FloatNear(1e-6f), {0.9375f, -0.25f, 1.0f}));
  EXPECT_THAT(result.returns, Pointwise(FloatNear(1e-6f), {1.9375f, 1.75f, 4.0f}));
}

TEST(Gae, takes_nothing_from_beyond_a_terminal_state) {
  //   A_1 = 0 - 2 = -2;  A_0 = 1 + 0.25*(-2) = 0.5
  Trajectories t = three_steps();
  t.terminated = {0, 1, 0};
  t.final_values = {9, 9, 9};
  const Outcome result = run(t, {.gamma = 0.5, .lambda = 0.5});
  EXPECT_THAT(result.advantages, Pointwise(FloatNear(1e-6f), {0.5f, -2.0f, 1.0f}));
}

TEST(Gae, bootstraps_a_truncated_episode_from_its_final_observation) {
  //   A_1 = 0 + 0.5*10 - 2 = 3;  A_0 = 1 + 0.25*3 = 1.75
  Trajectories t = three_steps();
  t.truncated = {0, 1, 0};
  t.final_values = {0, 10, 0};
  const Outcome result = run(t, {.gamma = 0.5, .lambda = 0.5});
  EXPECT_THAT(result.advantages, Pointwise(FloatNear(1e-6f), {1.75f, 3.0f, 1.0f}));
}

TEST(Gae, treats_an_end_of_both_kinds_as_terminal) {
  Trajectories both = three_steps(), terminal = three_steps();
  both.terminated = terminal.terminated = {0, 0, 1};
  both.truncated = {0, 0, 1};
  both.final_values = {0, 0, 10};
  EXPECT_EQ(run(both, {}).advantages, run(terminal, {}).advantages);
}

TEST(Gae, equals_the_papers_sum_in_double_precision_on_random_trajectories) {
  unsigned seed = 100;
  for (const double lambda : {0.0, 0.9, 1.0}) {
    const Trajectories t = random_trajectories(9, 50, ++seed);
    const Outcome result = run(t, {.gamma = 0.99, .lambda = lambda});
    for (std::int64_t i = 0; i < t.n; ++i) {
      const ReferenceRow reference{t, i, 0.99};
      for (std::int64_t s = 0; s < t.steps; ++s) {
        const double expected = reference.gae_advantage(s, lambda);
        ASSERT_NEAR(result.advantages[reference.at(s)], expected, 1e-4);
        ASSERT_NEAR(result.returns[reference.at(s)], expected + reference.value(s), 1e-4);
      }
    }
  }
}

TEST(Gae, values_a_state_that_is_only_ever_truncated_at_reward_over_one_minus_gamma) {
  // Reward 0.5, gamma 0.9: 0.5 / 0.1 = 5.
  float value = 0;
  for (int iteration = 0; iteration < 400; ++iteration) {
    Trajectories t(1, 8);
    std::fill(t.values.begin(), t.values.end(), value);
    std::fill(t.rewards.begin(), t.rewards.end(), 0.5f);
    for (const std::size_t end : {2u, 5u}) {
      t.truncated[end] = 1;
      t.final_values[end] = value;
    }
    double mean = 0;
    for (const float target : run(t, {.gamma = 0.9, .lambda = 0.8}).returns) {
      mean += static_cast<double>(target) / 8;
    }
    value = static_cast<float>(mean);
  }
  EXPECT_NEAR(value, 5.0, 1e-3);
}

TEST(Gae, names_the_array_of_the_wrong_size) {
  const Trajectories t = three_steps();
  std::vector<float> out(3), small(2);
  EXPECT_THROW(gae(t.rows(), {}, small, out), std::invalid_argument);
  EXPECT_THROW(gae(t.rows(), {}, out, small), std::invalid_argument);
}

}  // namespace
}  // namespace gristmill
