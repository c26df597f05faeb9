#include "rollout/restart_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

namespace gristmill {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;

class RestartPolicyTest : public testing::Test {
 protected:
  RestartPolicyTest() {
    config_.max_restarts = 4;
    config_.restart_window_s = 60;
    config_.restart_backoff_s = 0.5;
  }
  // Killed while it ran.
  RestartPolicy::Verdict killed(std::chrono::seconds at) {
    return policy_.judge({.account = "worker 3 was killed",
                          .phase = Phase::kRunning,
                          .entered = true,
                          .described = true,
                          .ran = true},
                         RestartPolicy::TimePoint(at));
  }

  Config::Workers config_;
  RestartPolicy policy_{config_, 3};
};

TEST_F(RestartPolicyTest, TheDelayDoublesUpToFiveSeconds) {
  config_.max_restarts = 100;
  std::vector<double> delays;
  for (int i = 0; i < 6; ++i) delays.push_back(killed(0s).delay.count());
  EXPECT_EQ(delays, (std::vector<double>{0.5, 1, 2, 4, 5, 5}));
  EXPECT_EQ(policy_.incarnation(), 6);
}

TEST_F(RestartPolicyTest, WhatLiesOutsideTheWindowIsForgotten) {
  for (int i = 0; i < 40; ++i) {
    const auto verdict = killed(std::chrono::seconds(61 * i));
    ASSERT_TRUE(verdict.restart) << i;
    EXPECT_EQ(verdict.delay.count(), 0.5);
  }
}

TEST_F(RestartPolicyTest, TooManyEndsWithinTheWindowAreToldWithTheLastAccounts) {
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(killed(std::chrono::seconds(i)).restart);
  const auto verdict = killed(5s);
  EXPECT_FALSE(verdict.restart);
  EXPECT_THAT(verdict.why_not,
              AllOf(HasSubstr("worker 3 ended 5 times within 60 s"), HasSubstr("workers.max_restarts is 4"),
                    HasSubstr("worker 3 was killed")));
}

TEST_F(RestartPolicyTest, FailuresAtTheFirstStartAreNotRepeated) {
  const auto verdict = policy_.judge(
      {.account = "worker 3 failed: no such game", .phase = Phase::kFailed, .entered = true}, {});
  EXPECT_FALSE(verdict.restart);
  EXPECT_THAT(verdict.why_not, HasSubstr("no such game"));
}

TEST_F(RestartPolicyTest, FailuresBeforeTheFirstStepAreRepeatedOnceUnlessItRanBetweenThem) {
  const WorkerEnd failed{.account = "x", .phase = Phase::kFailed, .entered = true, .described = true};
  ASSERT_TRUE(policy_.judge(failed, {}).restart);
  ASSERT_TRUE(killed(0s).restart);
  ASSERT_TRUE(policy_.judge(failed, {}).restart);
  EXPECT_THAT(policy_.judge(failed, {}).why_not, HasSubstr("twice in a row"));
}

TEST_F(RestartPolicyTest, MuteExitsAreRepeatedOnceIfTheirStatusIsTheSame) {
  ASSERT_TRUE(policy_.judge({.account = "x", .exit_status = 1}, {}).restart);
  ASSERT_TRUE(policy_.judge({.account = "x", .exit_status = 2}, {}).restart);
  ASSERT_TRUE(policy_.judge({.account = "x"}, {}).restart);  // by a signal: memory may have been short
  ASSERT_TRUE(policy_.judge({.account = "x", .exit_status = 2}, {}).restart);
  EXPECT_FALSE(policy_.judge({.account = "x", .exit_status = 2}, {}).restart);
}

TEST_F(RestartPolicyTest, WhatCannotBeStartedIsNotTriedAgain) {
  EXPECT_FALSE(policy_.judge({.account = "x", .repeats_itself = true}, {}).restart);
}

}  // namespace
}  // namespace gristmill
