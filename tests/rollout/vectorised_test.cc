#include "rollout/vectorised.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "rollout/cartpole.h"
#include "rollout/random.h"
#include "tests/rollout/vector_rows.h"

namespace gristmill {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

// Counts its steps; ends as its action says: 0 goes on, 1 terminates, 2 truncates, 3 both.
class Script {
 public:
  static EnvironmentSpec spec() {
    EnvironmentSpec spec;
    spec.observation_shape = {2};
    spec.action_count = 4;
    return spec;
  }
  explicit Script(std::uint64_t from) : seed(from) {}
  void reset(float* observation) {
    ++episode_;
    steps_ = 0;
    observe(observation);
  }
  StepResult step(std::int32_t action, float* observation) {
    ++steps_;
    observe(observation);
    return {.reward = static_cast<float>(10 * steps_),
            .terminated = (action & 1) != 0,
            .truncated = (action & 2) != 0};
  }
  std::uint64_t seed;

 private:
  void observe(float* observation) const {
    observation[0] = static_cast<float>(episode_);
    observation[1] = static_cast<float>(steps_);
  }
  int episode_ = 0, steps_ = 0;
};

// Continuous: observes the sum of its two actions.
class Sum {
 public:
  static EnvironmentSpec spec() {
    EnvironmentSpec spec;
    spec.action_dims = 2;
    spec.action_low = {-1, -1};
    spec.action_high = {1, 1};
    return spec;
  }
  explicit Sum(std::uint64_t) {}
  void reset(float* observation) { *observation = 0; }
  StepResult step(const float* action, float* observation) {
    *observation = action[0] + action[1];
    return {};
  }
};

struct Mistaken : Script {
  using Script::Script;
  static EnvironmentSpec spec() { return Sum::spec(); }
};

TEST(Vectorised, WritesEachObservationIntoItsRowAndNothingBetween) {
  Vectorised<Script> environments(3, 0, 0);
  VectorBuffers buffers(environments, /*padding=*/5);
  environments.reset(buffers.observations.rows());
  environments.step(buffers.actions.rows(), buffers.out());
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(buffers.observations.values(i), ElementsAre(1, 1));
    EXPECT_THAT(buffers.rewards.values(i), ElementsAre(10));
    EXPECT_THAT(buffers.terminated.values(i), ElementsAre(false));
    EXPECT_THAT(buffers.truncated.values(i), ElementsAre(false));
  }
  EXPECT_TRUE(buffers.padding_untouched());
}

TEST(Vectorised, BeginsTheNextEpisodeInTheStepOfAnEndAndKeepsTheFinalObservation) {
  Vectorised<Script> environments(3, 0, 0);
  VectorBuffers buffers(environments);
  environments.reset(buffers.observations.rows());
  environments.step(buffers.actions.rows(), buffers.out());
  *buffers.actions.row(1) = 1;
  environments.step(buffers.actions.rows(), buffers.out());

  EXPECT_THAT(buffers.observations.values(1), ElementsAre(2, 0)) << "the next episode's first";
  EXPECT_THAT(buffers.finals.values(1), ElementsAre(1, 2)) << "the ended episode's last";
  EXPECT_THAT(buffers.rewards.values(1), ElementsAre(20)) << "the ended episode's last";
  for (const int other : {0, 2}) {
    EXPECT_THAT(buffers.observations.values(other), ElementsAre(1, 2));
    EXPECT_THAT(buffers.finals.values(other), Each(-77)) << "untouched where no episode ended";
  }
  EXPECT_TRUE(buffers.padding_untouched());

  *buffers.actions.row(1) = 0;
  environments.step(buffers.actions.rows(), buffers.out());
  EXPECT_THAT(buffers.observations.values(1), ElementsAre(2, 1));
  EXPECT_THAT(buffers.rewards.values(1), ElementsAre(10));
  EXPECT_THAT(buffers.terminated.values(1), ElementsAre(false));
}

TEST(Vectorised, KeepsTerminatedAndTruncatedApart) {
  Vectorised<Script> environments(4, 0, 0);
  VectorBuffers buffers(environments);
  environments.reset(buffers.observations.rows());
  for (int i = 0; i < 4; ++i) *buffers.actions.row(i) = i;
  environments.step(buffers.actions.rows(), buffers.out());
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(*buffers.terminated.row(i), i == 1 || i == 3) << i;
    EXPECT_EQ(*buffers.truncated.row(i), i == 2 || i == 3) << i;
    EXPECT_EQ(*buffers.observations.row(i), i == 0 ? 1 : 2) << i;
  }
}

TEST(Vectorised, HandsOverContinuousActions) {
  Vectorised<Sum> environments(2, 0, 0);
  VectorBuffers buffers(environments);
  RowBuffer<float> actions(2, 2, 1, 0);
  actions.row(0)[0] = 0.25F;
  actions.row(0)[1] = 0.5F;
  actions.row(1)[0] = -1;
  environments.reset(buffers.observations.rows());
  environments.step(actions.rows(), buffers.out());
  EXPECT_THAT(buffers.observations.values(0), ElementsAre(0.75F));
  EXPECT_THAT(buffers.observations.values(1), ElementsAre(-1));
}

TEST(Vectorised, SeedsDependOnTheEnvironmentsPlaceInTheRunNotOnTheVector) {
  Vectorised<Script> whole(8, 5, 0), second_half(4, 5, 4), other_seed(8, 6, 0);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(whole.copy(i + 4).seed, second_half.copy(i).seed);
  for (int i = 0; i < 8; ++i) {
    EXPECT_NE(whole.copy(i).seed, other_seed.copy(i).seed);
    for (int j = 0; j < i; ++j) EXPECT_NE(whole.copy(i).seed, whole.copy(j).seed);
  }
}

TEST(Vectorised, TheSameSeedPlaysTheSameEpisodes) {
  Vectorised<CartPole> a(16, 9, 0), b(16, 9, 0);
  VectorBuffers rows_a(a), rows_b(b);
  Random random(1);
  a.reset(rows_a.observations.rows());
  b.reset(rows_b.observations.rows());
  std::int64_t ends = 0;
  for (int t = 0; t < 500; ++t) {
    for (int i = 0; i < 16; ++i) {
      *rows_a.actions.row(i) = *rows_b.actions.row(i) = static_cast<std::int32_t>(random.below(2));
    }
    a.step(rows_a.actions.rows(), rows_a.out());
    b.step(rows_b.actions.rows(), rows_b.out());
    for (int i = 0; i < 16; ++i) {
      ASSERT_EQ(rows_a.observations.values(i), rows_b.observations.values(i));
      ends += *rows_a.terminated.row(i);
    }
  }
  EXPECT_GT(ends, 100) << "later episodes were compared too";
}

TEST(Vectorised, RefusesNoEnvironmentsAndNegativeIndices) {
  EXPECT_THROW(Vectorised<CartPole>(0, 0, 0), std::invalid_argument);
  EXPECT_THROW(Vectorised<CartPole>(-1, 0, 0), std::invalid_argument);
  EXPECT_THROW(Vectorised<CartPole>(1, 0, -1), std::invalid_argument);
}

TEST(Vectorised, RefusesASpecThatContradictsTheStepFunction) {
  EXPECT_THROW(Vectorised<Mistaken>(1, 0, 0), std::logic_error);
}

}  // namespace
}  // namespace gristmill
