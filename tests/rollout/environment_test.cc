#include "rollout/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <stdexcept>

#include "tests/rollout/vector_rows.h"

namespace gristmill {
namespace {

using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

EnvironmentSpec discrete_spec() {
  EnvironmentSpec spec;
  spec.observation_dtype = DType::kUInt8;
  spec.observation_shape = {84, 84, 4};
  spec.action_count = 6;
  return spec;
}

EnvironmentSpec box_spec() {
  EnvironmentSpec spec;
  spec.observation_shape = {3};
  spec.action_dims = 2;
  spec.action_low = {-kInfinity, -0.1F};
  spec.action_high = {0.3F, kInfinity};
  return spec;
}

TEST(EnvironmentSpec, SizesFollowFromShapeAndDtype) {
  EXPECT_EQ(discrete_spec().observation_elements(), 84 * 84 * 4);
  EXPECT_EQ(discrete_spec().observation_bytes(), 84U * 84 * 4);
  EXPECT_EQ(discrete_spec().action_bytes(), 4U);
  EXPECT_EQ(box_spec().observation_bytes(), 12U);
  EXPECT_EQ(box_spec().action_bytes(), 8U);
}

TEST(EnvironmentSpec, AScalarObservationIsOneElement) {
  EnvironmentSpec spec;
  spec.action_count = 2;
  EXPECT_EQ(spec.observation_elements(), 1);
  EXPECT_EQ(EnvironmentSpec::from_json(spec.to_json()), spec);
}

TEST(EnvironmentSpec, SurvivesJson) {
  EXPECT_EQ(EnvironmentSpec::from_json(discrete_spec().to_json()), discrete_spec());
}

TEST(EnvironmentSpec, UnboundedActionsSurviveJsonWhichHasNoInfinity) {
  EXPECT_THAT(box_spec().to_json(), HasSubstr("null"));
  EXPECT_EQ(EnvironmentSpec::from_json(box_spec().to_json()), box_spec());
}

TEST(EnvironmentSpec, ANanBoundIsRefused) {
  EnvironmentSpec spec = box_spec();
  spec.action_low[0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THROW(spec.to_json(), std::invalid_argument);
}

TEST(EnvironmentSpec, MalformedJsonIsRefusedWithWhatWasExpected) {
  struct Case {
    const char *json, *message;
  };
  const Case cases[] = {
      {"", "not a JSON object"},
      {"[1]", "not a JSON object"},
      {"{}", "\"observation\" is missing"},
      {R"({"observation":{"dtype":"float64","shape":[1]},"action":{"count":2}})", "\"float32\" or \"uint8\""},
      {R"({"observation":{"dtype":3,"shape":[1]},"action":{"count":2}})", "\"float32\" or \"uint8\""},
      {R"({"observation":{"dtype":"uint8"},"action":{"count":2}})", "observation.shape"},
      {R"({"observation":{"dtype":"uint8","shape":[0]},"action":{"count":2}})", "positive integers"},
      {R"({"observation":{"dtype":"uint8","shape":[1.5]},"action":{"count":2}})", "positive integers"},
      {R"({"observation":{"dtype":"uint8","shape":[4294967296,4294967296]},"action":{"count":2}})", "2^40"},
      {R"({"observation":{"dtype":"uint8","shape":[1]}})", "\"action\" is missing"},
      {R"({"observation":{"dtype":"uint8","shape":[1]},"action":{"count":0}})", "action.count is 0"},
      {R"({"observation":{"dtype":"uint8","shape":[1]},"action":{"count":2147483648}})", "2^31 - 1"},
      {R"({"observation":{"dtype":"uint8","shape":[1]},"action":{"low":[],"high":[]}})", "action.low"},
      {R"({"observation":{"dtype":"uint8","shape":[1]},"action":{"low":[0],"high":["x"]}})", "action.high"},
      {R"({"observation":{"dtype":"uint8","shape":[1]},"action":{"low":[0],"high":[1,2]}})",
       "differ in length"},
      {R"({"observation":{"dtype":"uint8","shape":[1]},"action":{"low":[2],"high":[1]}})", "above"},
  };
  for (const Case& bad : cases) {
    try {
      EnvironmentSpec::from_json(bad.json);
      ADD_FAILURE() << "accepted: " << bad.json;
    } catch (const std::invalid_argument& error) {
      EXPECT_THAT(error.what(), HasSubstr(bad.message)) << bad.json;
    }
  }
}

TEST(StreamSeed, NeighbouringSeedsAndStreamsShareNothing) {
  std::set<std::uint64_t> seen;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    for (std::uint64_t stream = 0; stream < 100; ++stream) seen.insert(stream_seed(seed, stream));
  }
  EXPECT_EQ(seen.size(), 10'000U);
}

// The Python workers compute the same seeds: tests/python/test_gymnasium_env.py has these numbers too.
TEST(StreamSeed, IsTheSameOnEveryPlatform) {
  EXPECT_EQ(stream_seed(0, 0), 0xa706dd2f4d197e6fU);
  EXPECT_EQ(stream_seed(42, 7), 0xc48f072461237b34U);
}

TEST(NativeEnvironments, EveryListedIdCanBeMadeAndStepped) {
  ASSERT_FALSE(native_environment_ids().empty());
  for (const std::string& id : native_environment_ids()) {
    EXPECT_TRUE(is_native_environment(id));
    const auto environments = make_native_environments(id, 3, 1, 0);
    ASSERT_EQ(environments->size(), 3) << id;
    VectorBuffers buffers(*environments);
    environments->reset(buffers.observations.rows());
    for (int t = 0; t < 1'000; ++t) environments->step(buffers.actions.rows(), buffers.out());
    EXPECT_TRUE(buffers.padding_untouched()) << id;
  }
}

TEST(NativeEnvironments, AnUnknownIdIsRefusedWithTheKnownOnes) {
  EXPECT_FALSE(is_native_environment("CartPole-v1"));
  try {
    make_native_environments("CartPole-v1", 1, 0, 0);
    FAIL() << "accepted";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("\"CartPole-v1\""));
    EXPECT_THAT(error.what(), HasSubstr("cartpole, template, truncating, synthetic"));
    EXPECT_THAT(error.what(), HasSubstr("gymnasium:CartPole-v1"));
  }
}

}  // namespace
}  // namespace gristmill
