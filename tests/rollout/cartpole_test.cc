#include "rollout/cartpole.h"

#include <gtest/gtest.h>

#include <array>
#include <set>

namespace gristmill {
namespace {

using Observation = std::array<float, 4>;

// Worked out with Gymnasium 1.4's CartPole-v1. tests/python/test_cartpole.py compares whole episodes.
TEST(CartPole, OneStepIsGymnasiumsStep) {
  CartPole cartpole(0);
  Observation observation;
  cartpole.set_state({0.5, -0.25, 0.125, 0.75}, 0);
  const StepResult right = cartpole.step(1, observation.data());
  EXPECT_FALSE(right.terminated);
  EXPECT_EQ(right.reward, 1);
  const CartPole::State expected_right{0.495, -0.05680342933642124, 0.14, 0.49912059152159327};
  EXPECT_NEAR(cartpole.state().x, expected_right.x, 1e-15);
  EXPECT_NEAR(cartpole.state().x_velocity, expected_right.x_velocity, 1e-15);
  EXPECT_NEAR(cartpole.state().angle, expected_right.angle, 1e-15);
  EXPECT_NEAR(cartpole.state().angle_velocity, expected_right.angle_velocity, 1e-15);
}

TEST(CartPole, AnglesBeyondHalfARadianAreExactToo) {
  CartPole cartpole(0);
  Observation observation;
  cartpole.set_state({0, 0, 1.25, 0.5}, 0);
  const StepResult left = cartpole.step(0, observation.data());
  EXPECT_TRUE(left.terminated);
  const CartPole::State expected{0.0, -0.18686820151263825, 1.26, 0.8673870622268227};
  EXPECT_NEAR(cartpole.state().x_velocity, expected.x_velocity, 1e-14);
  EXPECT_NEAR(cartpole.state().angle_velocity, expected.angle_velocity, 1e-14);
}

TEST(CartPole, StartsWithinTheRangeAndFillsIt) {
  CartPole cartpole(3);
  Observation observation, low, high;
  low.fill(1);
  high.fill(-1);
  for (int i = 0; i < 1'000; ++i) {
    cartpole.reset(observation.data());
    for (std::size_t k = 0; k < 4; ++k) {
      low[k] = std::min(low[k], observation[k]);
      high[k] = std::max(high[k], observation[k]);
    }
  }
  for (std::size_t k = 0; k < 4; ++k) {
    EXPECT_GE(low[k], -0.05F);
    EXPECT_LT(low[k], -0.049F);
    EXPECT_LE(high[k], 0.05F);
    EXPECT_GT(high[k], 0.049F);
  }
}

TEST(CartPole, SuccessiveEpisodesStartApart) {
  CartPole cartpole(3);
  std::set<Observation> starts;
  Observation observation;
  for (int i = 0; i < 100; ++i) {
    cartpole.reset(observation.data());
    starts.insert(observation);
  }
  EXPECT_EQ(starts.size(), 100U);
}

TEST(CartPole, EndsBeyond24MetresOrTwelveDegreesOnEitherSide) {
  struct Case {
    CartPole::State state;
    bool terminated;
  };
  constexpr double kTwelveDegrees = 12 * 2 * std::numbers::pi / 360;
  const Case cases[] = {
      {{2.3999, 0, 0, 0}, false},
      {{2.4001, 0, 0, 0}, true},
      {{-2.3999, 0, 0, 0}, false},
      {{-2.4001, 0, 0, 0}, true},
      {{0, 0, kTwelveDegrees - 1e-4, 0}, false},
      {{0, 0, kTwelveDegrees + 1e-4, 0}, true},
      {{0, 0, -kTwelveDegrees + 1e-4, 0}, false},
      {{0, 0, -kTwelveDegrees - 1e-4, 0}, true},
  };
  for (const Case& each : cases) {
    CartPole cartpole(0);
    Observation observation;
    cartpole.set_state(each.state, 0);
    EXPECT_EQ(cartpole.step(1, observation.data()).terminated, each.terminated)
        << "x " << each.state.x << ", angle " << each.state.angle;
  }
}

TEST(CartPole, IsTruncatedAtStep500AndNotBefore) {
  CartPole cartpole(0);
  Observation observation;
  cartpole.reset(observation.data());
  for (int t = 1; t <= 500; ++t) {
    // Held upright from outside: only the time limit can end it.
    cartpole.set_state({}, t - 1);
    const StepResult result = cartpole.step(t % 2, observation.data());
    ASSERT_FALSE(result.terminated);
    ASSERT_EQ(result.truncated, t == 500) << t;
  }
}

TEST(CartPole, FallingInTheLastStepIsTerminatedAndTruncated) {
  CartPole cartpole(0);
  Observation observation;
  cartpole.set_state({3, 0, 0, 0}, 499);
  const StepResult result = cartpole.step(0, observation.data());
  EXPECT_TRUE(result.terminated);
  EXPECT_TRUE(result.truncated);
}

TEST(CartPole, TheTimeLimitCountsAnewAfterReset) {
  CartPole cartpole(0);
  Observation observation;
  cartpole.set_state({}, 499);
  EXPECT_TRUE(cartpole.step(0, observation.data()).truncated);
  cartpole.reset(observation.data());
  EXPECT_FALSE(cartpole.step(0, observation.data()).truncated);
}

}  // namespace
}  // namespace gristmill
