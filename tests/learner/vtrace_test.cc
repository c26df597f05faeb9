#include "learner/vtrace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/learner/returns_reference.h"

namespace gristmill {
namespace {

using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

struct Outcome {
  std::vector<float> targets, advantages;
};

Outcome run(const Trajectories& t, const VTraceOptions& options) {
  Outcome result{std::vector<float>(t.rewards.size()), std::vector<float>(t.rewards.size())};
  vtrace(t.rows(), t.log_ratios, options, result.targets, result.advantages);
  return result;
}

constexpr float kLogTwo = 0.69314718f;

TEST(VTrace, matches_values_worked_out_by_hand_on_policy) {
  // gamma = 0.5, ratios 1:
  //   delta_2 = 2 + 0.5*4 - 3 = 1      vs_2 = 3 + 1                    = 4
  //   delta_1 = 0 + 0.5*3 - 2 = -0.5   vs_1 = 2 - 0.5 + 0.5*(4 - 3)    = 2
  //   delta_0 = 1 + 0.5*2 - 1 = 1      vs_0 = 1 + 1   + 0.5*(2 - 2)    = 2
  //   adv_2 = 2 + 0.5*4 - 3 = 1;  adv_1 = 0 + 0.5*4 - 2 = 0;  adv_0 = 1 + 0.5*2 - 1 = 1
  const Outcome result = run(three_steps(), {.gamma = 0.5});
  EXPECT_THAT(result.targets, Pointwise(FloatNear(1e-6f), {2.0f, 2.0f, 4.0f}));
  EXPECT_THAT(result.advantages, Pointwise(FloatNear(1e-6f), {1.0f, 0.0f, 1.0f}));
}

TEST(VTrace, clips_each_ratio_at_its_own_bound) {
  // gamma = 0.5; ratios 2, 0.5, 2; rho_clip 1.5, c_clip 1, pg_rho_clip 3 (so rho = 1.5, 0.5, 1.5;
  // c = 1, 0.5, 1; pg = 2, 0.5, 2):
  //   vs_2 = 3 + 1.5*1                   = 4.5
  //   vs_1 = 2 + 0.5*(-0.5) + 0.5*0.5*(4.5 - 3) = 2 - 0.25 + 0.375 = 2.125
  //   vs_0 = 1 + 1.5*1 + 0.5*1*(2.125 - 2)      = 2.5625
  //   adv_2 = 2*(2 + 0.5*4 - 3)      = 2
  //   adv_1 = 0.5*(0 + 0.5*4.5 - 2)  = 0.125
  //   adv_0 = 2*(1 + 0.5*2.125 - 1)  = 2.125
  Trajectories t = three_steps();
  t.log_ratios = {kLogTwo, -kLogTwo, kLogTwo};
  const Outcome result = run(t, {.gamma = 0.5, .rho_clip = 1.5, .c_clip = 1, .pg_rho_clip = 3});
  EXPECT_THAT(result.targets, Pointwise(FloatNear(1e-6f), {2.5625f, 2.125f, 4.5f}));
  EXPECT_THAT(result.advantages, Pointwise(FloatNear(1e-6f), {2.125f, 0.125f, 2.0f}));
}

TEST(VTrace, leaves_the_ratio_out_of_an_unweighted_advantage) {
  // As above without the factors 2, 0.5, 2.
  Trajectories t = three_steps();
  t.log_ratios = {kLogTwo, -kLogTwo, kLogTwo};
  const Outcome result =
      run(t, {.gamma = 0.5, .rho_clip = 1.5, .c_clip = 1, .pg_rho_clip = VTraceOptions::kUnweighted});
  EXPECT_THAT(result.advantages, Pointwise(FloatNear(1e-6f), {1.0625f, 0.25f, 1.0f}));
}

TEST(VTrace, takes_nothing_from_beyond_a_terminal_state) {
  // terminated after step 1, so V_2 counts for nothing there:
  //   vs_1 = 2 + (0 - 2) = 0;  vs_0 = 1 + 1 + 0.5*(0 - 2) = 1;  adv_1 = -2;  adv_0 = 1 + 0.5*0 - 1 = 0
  Trajectories t = three_steps();
  t.terminated = {0, 1, 0};
  t.final_values = {9, 9, 9};  // never read
  const Outcome result = run(t, {.gamma = 0.5});
  EXPECT_THAT(result.targets, Pointwise(FloatNear(1e-6f), {1.0f, 0.0f, 4.0f}));
  EXPECT_THAT(result.advantages, Pointwise(FloatNear(1e-6f), {0.0f, -2.0f, 1.0f}));
}

TEST(VTrace, bootstraps_a_truncated_episode_from_its_final_observation) {
  // truncated after step 1 at a state worth 10:
  //   vs_1 = 2 + (0 + 0.5*10 - 2) = 5;  vs_0 = 1 + 1 + 0.5*(5 - 2) = 3.5
  //   adv_1 = 3;  adv_0 = 1 + 0.5*5 - 1 = 2.5
  Trajectories t = three_steps();
  t.truncated = {0, 1, 0};
  t.final_values = {0, 10, 0};
  const Outcome result = run(t, {.gamma = 0.5});
  EXPECT_THAT(result.targets, Pointwise(FloatNear(1e-6f), {3.5f, 5.0f, 4.0f}));
  EXPECT_THAT(result.advantages, Pointwise(FloatNear(1e-6f), {2.5f, 3.0f, 1.0f}));
}

TEST(VTrace, treats_an_end_of_both_kinds_as_terminal) {
  Trajectories both = three_steps(), terminal = three_steps();
  both.terminated = terminal.terminated = {0, 1, 1};
  both.truncated = {0, 1, 1};
  both.final_values = {0, 10, 10};
  EXPECT_EQ(run(both, {}).targets, run(terminal, {}).targets);
  EXPECT_EQ(run(both, {}).advantages, run(terminal, {}).advantages);
}

TEST(VTrace, bootstraps_an_end_at_the_last_step_as_anywhere_else) {
  // terminated: vs_2 = 2;  truncated at 10: vs_2 = 2 + 0.5*10 = 7;  neither: 2 + 0.5*4 = 4.
  Trajectories t = three_steps();
  EXPECT_NEAR(run(t, {.gamma = 0.5}).targets[2], 4, 1e-6);
  t.final_values[2] = 10;
  t.truncated[2] = 1;
  EXPECT_NEAR(run(t, {.gamma = 0.5}).targets[2], 7, 1e-6);
  t.terminated[2] = 1;
  EXPECT_NEAR(run(t, {.gamma = 0.5}).targets[2], 2, 1e-6);
}

TEST(VTrace, equals_the_papers_sums_in_double_precision_on_random_trajectories) {
  unsigned seed = 0;
  for (const double lambda : {0.0, 0.8, 1.0}) {
    for (const double rho_clip : {0.7, 1.0, 3.0}) {
      for (const double pg_rho_clip : {VTraceOptions::kUnweighted, 1.0, 2.0}) {
        const VTraceOptions options{
            .gamma = 0.97, .lambda = lambda, .rho_clip = rho_clip, .c_clip = 1.1, .pg_rho_clip = pg_rho_clip};
        const Trajectories t = random_trajectories(7, 45, ++seed);
        const Outcome result = run(t, options);
        for (std::int64_t i = 0; i < t.n; ++i) {
          const ReferenceRow reference{t, i, options.gamma};
          for (std::int64_t s = 0; s < t.steps; ++s) {
            const std::size_t at = reference.at(s);
            ASSERT_NEAR(result.targets[at], reference.vtrace_target(s, options), 1e-4)
                << seed << " " << i << " " << s;
            ASSERT_NEAR(result.advantages[at], reference.vtrace_advantage(s, options), 2e-4)
                << seed << " " << i << " " << s;
          }
        }
      }
    }
  }
}

TEST(VTrace, gives_discounted_returns_on_policy_with_lambda_one) {
  // Remark 1 of the paper: the n-step Bellman target. Here by summing rewards up to the end.
  Trajectories t = random_trajectories(5, 30, 11);
  std::fill(t.log_ratios.begin(), t.log_ratios.end(), 0.0f);
  const double gamma = 0.9;
  const Outcome result = run(t, {.gamma = gamma});
  for (std::int64_t i = 0; i < t.n; ++i) {
    const ReferenceRow row{t, i, gamma};
    for (std::int64_t s = 0; s < t.steps; ++s) {
      double expected = 0, discount = 1;
      for (std::int64_t k = s; k < t.steps; ++k) {
        expected += discount * static_cast<double>(t.rewards[row.at(k)]);
        discount *= gamma;
        if (row.ends(k) || k + 1 == t.steps) {
          expected += discount * row.next_value(k);
          break;
        }
      }
      ASSERT_NEAR(result.targets[row.at(s)], expected, 1e-4);
    }
  }
}

TEST(VTrace, equals_generalised_advantages_on_policy_for_every_lambda) {
  for (const double lambda : {0.0, 0.5, 0.95, 1.0}) {
    Trajectories t = random_trajectories(6, 33, 5);
    std::fill(t.log_ratios.begin(), t.log_ratios.end(), 0.0f);
    const Outcome result = run(t, {.gamma = 0.98, .lambda = lambda});
    std::vector<float> returns(t.rewards.size()), advantages(t.rewards.size());
    gae(t.rows(), {.gamma = 0.98, .lambda = lambda}, returns, advantages);
    EXPECT_THAT(result.targets, Pointwise(FloatNear(2e-5f), returns));
    EXPECT_THAT(result.advantages, Pointwise(FloatNear(2e-5f), advantages));
  }
}

TEST(VTrace, values_a_state_that_is_only_ever_truncated_at_reward_over_one_minus_gamma) {
  // One state, reward 0.5 for ever, gamma 0.9: worth 0.5 / 0.1 = 5. Episodes are cut after 3 steps.
  // Fitting V to its own targets again and again must get there, from either side.
  for (const float start : {0.0f, 40.0f}) {
    float value = start;
    for (int iteration = 0; iteration < 200; ++iteration) {
      Trajectories t(1, 8);
      std::fill(t.values.begin(), t.values.end(), value);
      std::fill(t.rewards.begin(), t.rewards.end(), 0.5f);
      for (const std::size_t end : {2u, 5u}) {
        t.truncated[end] = 1;
        t.final_values[end] = value;
      }
      double mean = 0;
      for (const float target : run(t, {.gamma = 0.9}).targets) mean += static_cast<double>(target) / 8;
      value = static_cast<float>(mean);
    }
    EXPECT_NEAR(value, 5.0, 1e-3);
  }
}

TEST(VTrace, may_write_advantages_over_the_log_ratios) {
  const Trajectories t = random_trajectories(3, 20, 3);
  const Outcome expected = run(t, {});
  std::vector<float> memory = t.log_ratios, targets(memory.size());
  vtrace(t.rows(), memory, {}, targets, memory);
  EXPECT_EQ(memory, expected.advantages);
  EXPECT_EQ(targets, expected.targets);
}

TEST(VTrace, lets_a_nan_through_to_the_results) {
  Trajectories t = three_steps();
  t.log_ratios[1] = std::numeric_limits<float>::quiet_NaN();
  const Outcome result = run(t, {});
  EXPECT_TRUE(std::isnan(result.advantages[1]));
  EXPECT_TRUE(std::isnan(result.targets[0]));
  EXPECT_FALSE(std::isnan(result.targets[2]));
}

TEST(VTrace, stays_finite_whatever_the_ratio) {
  Trajectories t = three_steps();
  t.log_ratios = {1e30f, -1e30f, std::numeric_limits<float>::infinity()};
  const Outcome result = run(t, {});
  for (const float x : result.targets) EXPECT_TRUE(std::isfinite(x));
  for (const float x : result.advantages) EXPECT_TRUE(std::isfinite(x));
}

TEST(VTrace, accepts_no_trajectories) {
  const Trajectories t(0, 5);
  EXPECT_TRUE(run(t, {}).targets.empty());
}

TEST(VTrace, names_the_array_of_the_wrong_size) {
  Trajectories t = three_steps();
  t.values.pop_back();
  std::vector<float> out(3);
  try {
    vtrace(t.rows(), t.log_ratios, {}, out, out);
    FAIL() << "three values for three steps were accepted";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("values has 3 elements, expected 1 * 4"));
  }
  t = three_steps();
  std::vector<float> small(2);
  EXPECT_THROW(vtrace(t.rows(), t.log_ratios, {}, small, out), std::invalid_argument);
  EXPECT_THROW(vtrace(t.rows(), small, {}, out, out), std::invalid_argument);
}

}  // namespace
}  // namespace gristmill
