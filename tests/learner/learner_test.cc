#include "learner/learner.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "rollout/actor.h"
#include "tests/learner/batch_fixture.h"

namespace gristmill {
namespace {

Config small_config(const std::string& algorithm) {
  Config config;
  config.learner.algorithm = algorithm;
  config.learner.learning_rate = 1e-2;
  config.learner.epochs = 1;
  config.learner.minibatch_trajectories = 8;
  config.learner.gamma = 0.9;
  config.policy.hidden_sizes = {16};
  return config;
}

// Fills what the acting policy would have: actions, log-probabilities and values of `learner`'s own.
void act(MadeUpBatch& batch, Learner& learner, Actor& actor) {
  const std::int64_t n = batch.view().trajectories, steps = batch.view().unroll;
  const auto action_bytes = static_cast<std::ptrdiff_t>(learner.policy().environment().action_bytes());
  for (std::int64_t row = 0; row < n; ++row) {
    auto* observations = batch.data<std::byte>(kObservations) + row * (steps + 1) * 4;
    actor.act({observations, 4}, steps,
              {.actions = {batch.data<std::byte>(kActions) + row * steps * action_bytes, action_bytes},
               .log_probs = {batch.data<std::byte>(kLogProbs) + row * steps * 4, 4},
               .values = {batch.data<std::byte>(kValues) + row * (steps + 1) * 4, 4}});
    actor.values({observations + steps * 4, 4}, 1,
                 {batch.data<std::byte>(kValues) + (row * (steps + 1) + steps) * 4, 4});
  }
}

float value_of(Learner& learner, float observation) {
  Actor actor(learner.policy(), 0);
  float value = 0;
  actor.values({reinterpret_cast<std::byte*>(&observation), 4}, 1, {reinterpret_cast<std::byte*>(&value), 4});
  return value;
}

class EveryAlgorithm : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Learner, EveryAlgorithm, testing::Values("appo", "impala", "ppo"));

TEST_P(EveryAlgorithm, LearnsWhichActionIsRewarded) {
  Config config = small_config(GetParam());
  Learner learner(config, one_number());
  Actor actor(learner.policy(), 1);
  MadeUpBatch batch(one_number(), 16, 8);
  batch.fill<float>(kObservations, 1.0F);
  batch.fill<std::uint8_t>(kTerminated, 1);
  for (int update = 0; update < 60; ++update) {
    act(batch, learner, actor);
    for (int i = 0; i < 16 * 8; ++i) {
      batch.data<float>(kRewards)[i] = batch.data<std::int32_t>(kActions)[i] == 1 ? 1.0F : 0.0F;
    }
    ASSERT_EQ(learner.update(batch.view(), 0).not_finite, "");
  }
  act(batch, learner, actor);
  int ones = 0;
  for (int i = 0; i < 16 * 8; ++i) ones += batch.data<std::int32_t>(kActions)[i];
  EXPECT_GT(ones, 16 * 8 * 0.9);
}

// A state that is its own successor and is cut every few steps is worth r / (1 - gamma): the cuts
// are not ends, so their final observation's value must be bootstrapped from.
TEST_P(EveryAlgorithm, TheValueOfAStateThatOnlyEverTruncatesReachesTheDiscountedSum) {
  Config config = small_config(GetParam());
  config.learner.max_grad_norm = 0;
  config.policy.hidden_sizes = {};
  Learner learner(config, one_number());
  Actor actor(learner.policy(), 1);
  MadeUpBatch batch(one_number(), 8, 6);
  batch.fill<float>(kObservations, 1.0F);
  batch.fill<float>(kRewards, 1.0F);
  for (int i = 2; i < 8 * 6; i += 3) batch.data<std::uint8_t>(kTruncated)[i] = 1;
  for (int update = 0; update < 3000; ++update) {
    act(batch, learner, actor);
    batch.fill<float>(kFinalValues, value_of(learner, 1.0F));
    ASSERT_EQ(learner.update(batch.view(), 0).not_finite, "");
  }
  EXPECT_NEAR(value_of(learner, 1.0F), 1.0 / (1.0 - 0.9), 0.05);
}

TEST_P(EveryAlgorithm, TheSameSeedAndBatchesGiveTheSameParameters) {
  std::vector<std::vector<float>> results;
  for (int run = 0; run < 2; ++run) {
    Config config = small_config(GetParam());
    config.learner.epochs = 3;
    Learner learner(config, one_number());
    Actor actor(learner.policy(), 1);
    MadeUpBatch batch(one_number(), 32, 4);
    for (int i = 0; i < 32 * 5; ++i) batch.data<float>(kObservations)[i] = std::sin(static_cast<float>(i));
    for (int i = 0; i < 32 * 4; ++i) batch.data<float>(kRewards)[i] = std::cos(static_cast<float>(i));
    for (int update = 0; update < 5; ++update) {
      act(batch, learner, actor);
      learner.update(batch.view(), 0.1 * update);
    }
    results.emplace_back(learner.parameters().begin(), learner.parameters().end());
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST_P(EveryAlgorithm, ARewardThatIsNotFiniteLeavesTheParametersAsTheyWere) {
  Learner learner(small_config(GetParam()), one_number());
  Actor actor(learner.policy(), 1);
  MadeUpBatch batch(one_number(), 8, 4);
  act(batch, learner, actor);
  batch.data<float>(kRewards)[5] = std::nanf("");
  const std::vector<float> before(learner.parameters().begin(), learner.parameters().end());
  const UpdateStats stats = learner.update(batch.view(), 0);
  EXPECT_NE(stats.not_finite.find("epoch 0, trajectories 0 to 7"), std::string::npos) << stats.not_finite;
  EXPECT_EQ(std::vector<float>(learner.parameters().begin(), learner.parameters().end()), before);
}

TEST(LearnerTest, LearnsAContinuousActionsMeanAndNarrowsItsSpread) {
  EnvironmentSpec spec = one_number();
  spec.action_count = 0;
  spec.action_dims = 1;
  spec.action_low = {-2};
  spec.action_high = {2};
  Config config = small_config("appo");
  config.learner.epochs = 2;
  Learner learner(config, spec);
  Actor actor(learner.policy(), 1);
  MadeUpBatch batch(spec, 16, 16);
  batch.fill<float>(kObservations, 1.0F);
  batch.fill<std::uint8_t>(kTerminated, 1);
  for (int update = 0; update < 200; ++update) {
    act(batch, learner, actor);
    for (int i = 0; i < 16 * 16; ++i) {
      const float miss = batch.data<float>(kActions)[i] - 0.7F;
      batch.data<float>(kRewards)[i] = -miss * miss;
    }
    ASSERT_EQ(learner.update(batch.view(), 0).not_finite, "");
  }
  act(batch, learner, actor);
  double mean = 0;
  for (int i = 0; i < 16 * 16; ++i) mean += batch.data<float>(kActions)[i] / (16.0 * 16.0);
  EXPECT_NEAR(mean, 0.7, 0.15);
  EXPECT_LT(learner.parameters().back(), -0.3F);  // log_std began at 0
}

TEST(LearnerTest, ALinearScheduleFallsWithProgress) {
  Config config = small_config("appo");
  config.learner.schedule = "linear";
  Learner learner(config, one_number());
  Actor actor(learner.policy(), 1);
  MadeUpBatch batch(one_number(), 8, 4);
  act(batch, learner, actor);
  EXPECT_DOUBLE_EQ(learner.update(batch.view(), 0.25).learning_rate, 0.75e-2);
}

TEST(LearnerTest, RefusesParametersOfAnotherPolicy) {
  Learner learner(small_config("appo"), one_number());
  const std::vector<float> wrong(3);
  EXPECT_THROW(learner.restore(wrong, wrong, wrong, 1), std::invalid_argument);
}

TEST(LearnerTest, ADeviceThatIsNotThereIsRefusedByName) {
  Config config = small_config("appo");
  config.learner.device = "cuda";
  if (at::hasCUDA()) GTEST_SKIP();
  try {
    const Learner learner(config, one_number());
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("learner.device: 'cuda'"), std::string::npos);
  }
}

}  // namespace
}  // namespace gristmill
