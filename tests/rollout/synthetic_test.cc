#include "rollout/synthetic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

namespace gristmill {
namespace {

using testing::HasSubstr;

std::string error_of(const std::string& json) {
  try {
    SyntheticOptions::from_json(json);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

// A vector's rows, close together.
struct Buffers {
  explicit Buffers(const VectorEnvironment& environment)
      : bytes(environment.spec().observation_bytes()),
        observations(bytes * static_cast<std::size_t>(environment.size())),
        finals(observations.size()),
        rewards(static_cast<std::size_t>(environment.size())),
        ends(2 * rewards.size()) {}
  Rows rows_of(std::vector<std::byte>& data) { return {data.data(), static_cast<std::ptrdiff_t>(bytes)}; }
  StepRows out() {
    return {.observations = rows_of(observations),
            .rewards = {reinterpret_cast<std::byte*>(rewards.data()), sizeof(float)},
            .terminated = {ends.data(), 1},
            .truncated = {ends.data() + rewards.size(), 1},
            .final_observations = rows_of(finals)};
  }
  std::size_t bytes;
  std::vector<std::byte> observations, finals;
  std::vector<float> rewards;
  std::vector<std::byte> ends;
};

TEST(Synthetic, HasTheShapeAndTheActionsThatItWasGiven) {
  const auto environment = make_native_environments(
      "synthetic", 3, 1, 0, R"({"observation": [84, 84, 4], "dtype": "uint8", "actions": 6})");
  EXPECT_EQ(environment->spec().observation_dtype, DType::kUInt8);
  EXPECT_EQ(environment->spec().observation_bytes(), 84u * 84 * 4);
  EXPECT_EQ(environment->spec().action_count, 6);
  EXPECT_EQ(environment->size(), 3);
}

TEST(Synthetic, WritesEveryObservationAnewAtEveryStep) {
  SyntheticEnvironments environment(SyntheticOptions::from_json(R"({"observation": [5], "dtype": "uint8"})"),
                                    2, 1, 0);
  Buffers buffers(environment);
  environment.reset(buffers.rows_of(buffers.observations));
  auto before = buffers.observations;
  for (int t = 0; t < 300; ++t) {
    environment.step({}, buffers.out());
    for (std::size_t i = 0; i < before.size(); ++i) ASSERT_NE(buffers.observations[i], before[i]);
    before = buffers.observations;
  }
}

TEST(Synthetic, EpisodesTerminateAfterTheirLengthAndNotAllAtOnce) {
  SyntheticEnvironments environment(SyntheticOptions::from_json(R"({"episode_length": 10})"), 4, 1, 0);
  Buffers buffers(environment);
  environment.reset(buffers.rows_of(buffers.observations));
  std::vector<int> ends(4);
  int together = 0;
  for (int t = 0; t < 100; ++t) {
    environment.step({}, buffers.out());
    int now = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      const bool over = buffers.ends[i] != std::byte{0};
      ends[i] += over;
      now += over;
      ASSERT_EQ(buffers.ends[4 + i], std::byte{0}) << "never truncated";
      ASSERT_EQ(buffers.rewards[i], 1);
    }
    together += now == 4;
  }
  EXPECT_THAT(ends, testing::Each(10));
  EXPECT_EQ(together, 0);
}

TEST(Synthetic, AStepCostsAtLeastWhatItWasToldHoweverItIsSpent) {
  for (const char* how : {"false", "true"}) {
    SyntheticEnvironments environment(
        SyntheticOptions::from_json(std::string(R"({"step_us": 500, "sleep": )") + how + "}"), 4, 1, 0);
    Buffers buffers(environment);
    const auto begin = std::chrono::steady_clock::now();
    for (int t = 0; t < 5; ++t) environment.step({}, buffers.out());
    EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(10));
  }
}

TEST(Synthetic, RefusesWhatItDoesNotUnderstandAndSaysWhy) {
  EXPECT_THAT(error_of(R"({"cost": 1})"), HasSubstr("no option 'cost'"));
  EXPECT_THAT(error_of(R"({"dtype": "float64"})"), HasSubstr("\"float32\" or \"uint8\""));
  EXPECT_THAT(error_of(R"({"observation": []})"), HasSubstr("a shape"));
  EXPECT_THAT(error_of(R"({"observation": [0]})"), HasSubstr("an integer from 1"));
  EXPECT_THAT(error_of(R"({"observation": [100000, 100000]})"), HasSubstr("observation is 100000"));
  EXPECT_THAT(error_of(R"({"step_us": -1})"), HasSubstr("step_us is -1"));
  EXPECT_THAT(error_of(R"({"episode_length": 1.5})"), HasSubstr("episode_length is 1.5"));
  EXPECT_THAT(error_of(R"({"random": 1})"), HasSubstr("true or false"));
  EXPECT_THAT(error_of("[1]"), HasSubstr("a mapping"));
}

}  // namespace
}  // namespace gristmill
