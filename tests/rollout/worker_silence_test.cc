#include "rollout/worker_silence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gristmill {
namespace {

using namespace std::chrono_literals;
using TimePoint = Progress::TimePoint;

constexpr TimePoint at(std::chrono::seconds s) { return TimePoint(s); }

class WorkerSilenceTest : public testing::Test {
 protected:
  WorkerSilenceTest() {
    config_.start_timeout_s = 60;
    config_.hang_timeout_s = 30;
  }
  std::optional<Patience> with(Phase phase, std::optional<TimePoint> ready = {}, TimePoint awake = at(0s)) {
    return patience_with({.phase = phase, .phase_since = at(10s), .beat = at(20s)}, config_, ready, awake);
  }
  Config::Workers config_;
};

TEST_F(WorkerSilenceTest, WhoRunsOwesHeartbeats) {
  const auto patience = with(Phase::kRunning);
  ASSERT_TRUE(patience);
  EXPECT_EQ(patience->since, at(20s));
  EXPECT_EQ(patience->limit_s, 30);
  EXPECT_TRUE(patience->heartbeats);
}

TEST_F(WorkerSilenceTest, WhoStartsHasTheStartsTime) {
  const auto patience = with(Phase::kStarting);
  ASSERT_TRUE(patience);
  EXPECT_EQ(patience->since, at(10s));
  EXPECT_EQ(patience->limit_s, 60);
  EXPECT_FALSE(patience->heartbeats);
}

TEST_F(WorkerSilenceTest, WhoIsMadeMayWaitForTheLearnerAsLongAsItTakes) {
  EXPECT_FALSE(with(Phase::kDescribed));
  EXPECT_EQ(with(Phase::kDescribed, at(5s))->since, at(10s));
  EXPECT_EQ(with(Phase::kDescribed, at(15s))->since, at(15s));
}

TEST_F(WorkerSilenceTest, WhoSaidItsEndOwesIt) {
  for (const Phase phase : {Phase::kStopped, Phase::kFailed, Phase::kFatal}) {
    EXPECT_EQ(with(phase)->since, at(10s));
    EXPECT_EQ(with(phase)->limit_s, 30);
  }
}

TEST_F(WorkerSilenceTest, TimeInWhichTheSupervisorSleptDoesNotCount) {
  EXPECT_EQ(with(Phase::kRunning, {}, at(25s))->since, at(25s));
  EXPECT_EQ(with(Phase::kStarting, {}, at(25s))->since, at(25s));
}

TEST_F(WorkerSilenceTest, TheOptionThatBoundsItIsNamed) {
  EXPECT_THAT(describe_silence(Phase::kRunning, 31, config_),
              testing::HasSubstr("workers.hang_timeout_s is 30 s"));
  EXPECT_THAT(describe_silence(Phase::kStarting, 61, config_),
              testing::HasSubstr("workers.start_timeout_s is 60 s"));
}

}  // namespace
}  // namespace gristmill
