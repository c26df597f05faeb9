#include "rollout/template_environment.h"

#include <gtest/gtest.h>

#include <array>

#include "rollout/truncating.h"

namespace gristmill {
namespace {

constexpr std::int32_t kLeft = 0, kStay = 1, kRight = 2;

// What every environment should show: where it starts, what ends it and how, what it pays, and that
// its randomness comes from its seed alone.

TEST(TemplateEnvironment, StartsLeftOfTheMiddle) {
  TemplateEnvironment environment(1);
  std::array<float, 2> observation{};
  for (int i = 0; i < 100; ++i) {
    environment.reset(observation.data());
    EXPECT_GE(observation[0], 0);
    EXPECT_LT(observation[0], 0.5F);
    EXPECT_EQ(observation[1], 0);
  }
}

TEST(TemplateEnvironment, TerminatesAtTheGoalWithItsReward) {
  TemplateEnvironment environment(1);
  std::array<float, 2> observation{};
  environment.reset(observation.data());
  StepResult result;
  int steps = 0;
  do {
    result = environment.step(kRight, observation.data());
    ASSERT_LE(++steps, TemplateEnvironment::kLength);
    EXPECT_EQ(result.reward, result.terminated ? 1.0F : -0.01F);
  } while (!result.terminated);
  EXPECT_FALSE(result.truncated);
  EXPECT_EQ(observation[0], 1);
}

TEST(TemplateEnvironment, TruncatesWhenTimeIsUp) {
  TemplateEnvironment environment(1);
  std::array<float, 2> observation{};
  environment.reset(observation.data());
  for (int t = 1; t <= TemplateEnvironment::kMaxSteps; ++t) {
    const StepResult result = environment.step(t % 2 == 0 ? kLeft : kStay, observation.data());
    ASSERT_FALSE(result.terminated);
    ASSERT_EQ(result.truncated, t == TemplateEnvironment::kMaxSteps);
    ASSERT_GE(observation[0], 0) << "the wall holds";
  }
}

TEST(TemplateEnvironment, TheSeedDecidesTheStarts) {
  const auto starts = [](std::uint64_t seed) {
    TemplateEnvironment environment(seed);
    std::array<float, 20> places{};
    for (float& place : places) {
      std::array<float, 2> observation{};
      environment.reset(observation.data());
      place = observation[0];
    }
    return places;
  };
  EXPECT_EQ(starts(7), starts(7));
  EXPECT_NE(starts(7), starts(8));
}

TEST(Truncating, PaysOneForEverAndIsCutEveryFiveSteps) {
  Truncating environment(0);
  float observation = 0;
  for (int episode = 0; episode < 3; ++episode) {
    environment.reset(&observation);
    for (int t = 1; t <= 5; ++t) {
      EXPECT_EQ(observation, 1);
      const StepResult result = environment.step(t % 2, &observation);
      EXPECT_EQ(result.reward, 1);
      EXPECT_FALSE(result.terminated);
      EXPECT_EQ(result.truncated, t == 5);
    }
  }
}

}  // namespace
}  // namespace gristmill
