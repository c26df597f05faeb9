#include "learner/run_timers.h"

#include <gtest/gtest.h>

#include <chrono>

namespace gristmill {
namespace {

using namespace std::chrono_literals;
using TimePoint = RunTimers::TimePoint;

TimePoint at(std::chrono::milliseconds t) { return TimePoint(t); }

TEST(RunTimersTest, MetricsAndCheckpointsComeAtTheirIntervals) {
  RunTimers timers(1000, at(0s));
  timers.start(1, 2.5, at(0s));
  int logs = 0, checkpoints = 0;
  for (auto t = 0ms; t <= 10s; t += 10ms) {
    const auto due = timers.take(at(t));
    logs += due.log;
    checkpoints += due.checkpoint;
    EXPECT_GT(timers.next(), at(t));
  }
  EXPECT_EQ(logs, 10);
  EXPECT_EQ(checkpoints, 4);
}

TEST(RunTimersTest, AnIntervalThatWasMissedIsNotMadeUpFor) {
  RunTimers timers(1000, at(0s));
  timers.start(1, 0, at(0s));
  EXPECT_TRUE(timers.take(at(60'500ms)).log);
  EXPECT_FALSE(timers.take(at(61s)).log);
  EXPECT_TRUE(timers.take(at(61'500ms)).log);
}

TEST(RunTimersTest, NoCheckpointIsDueWithoutAnInterval) {
  RunTimers timers(1000, at(0s));
  timers.start(1, 0, at(0s));
  EXPECT_FALSE(timers.take(at(999s)).checkpoint);
}

TEST(RunTimersTest, SilenceIsToldOnceAndAgainEachTimeItHasDoubled) {
  RunTimers timers(10, at(0s));
  timers.pushed(at(1s));
  std::vector<int> told;
  for (int t = 0; t < 100; ++t) {
    if (timers.take(at(std::chrono::seconds(t))).stalled) told.push_back(t);
  }
  EXPECT_EQ(told, (std::vector<int>{11, 21, 41, 81}));
  EXPECT_EQ(timers.silent_s(at(81s)), 80);
}

TEST(RunTimersTest, APushEndsTheSilence) {
  RunTimers timers(10, at(0s));
  ASSERT_TRUE(timers.take(at(10s)).stalled);
  for (int t = 11; t < 50; ++t) {
    timers.pushed(at(std::chrono::seconds(t)));
    ASSERT_FALSE(timers.take(at(std::chrono::seconds(t))).stalled);
  }
  timers.pushed(at(20s));  // older news
  EXPECT_FALSE(timers.take(at(58s)).stalled);
  EXPECT_TRUE(timers.take(at(59s)).stalled);
}

}  // namespace
}  // namespace gristmill
