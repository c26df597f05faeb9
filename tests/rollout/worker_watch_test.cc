// Workers that make no progress.

#include <signal.h>
#include <unistd.h>

#include "tests/rollout/worker_pool_fixture.h"

namespace gristmill {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using Kind = WorkerEvent::Kind;

class WorkerWatchTest : public WorkerPoolTest {
 protected:
  // What was said of hanging workers, in order, once there are so many.
  std::vector<std::string> hung(std::size_t count) {
    std::vector<std::string> messages;
    EXPECT_TRUE(eventually([&] {
      find(Kind::kHung);
      messages.clear();
      for (const WorkerEvent& event : events_) {
        if (event.kind == Kind::kHung) messages.push_back(event.message);
      }
      return messages.size() >= count;
    }));
    return messages;
  }
};

TEST_F(WorkerWatchTest, AHungWorkerIsNamedWithItsStackThenKilledAndRestarted) {
  config_.workers.count = 1;
  config_.workers.hang_timeout_s = 3;
  start(scripted("hang-once"));
  ASSERT_TRUE(see(Kind::kRestarted));
  const auto messages = hung(2);
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_THAT(
      messages[0],
      AllOf(HasSubstr("worker 0 (pid "), ContainsRegex("has given no sign of life for [12]\\."),
            ContainsRegex("state [RSD] \\("), HasSubstr("after 3 s (workers.hang_timeout_s)"),
            HasSubstr("Its stack, innermost first:\n"), HasSubstr("pause"), HasSubstr("sleep_for_ever")));
  EXPECT_THAT(messages[1], AllOf(HasSubstr("worker 0 (pid "), HasSubstr("gave no sign of life for "),
                                 HasSubstr("workers.hang_timeout_s is 3 s"), HasSubstr("killing it"),
                                 HasSubstr("Its stack, innermost first:\n"), HasSubstr("pause")));
  EXPECT_THAT(message(Kind::kDied), HasSubstr("because it gave no sign of life"));
  EXPECT_TRUE(eventually([&] { return all_running(); }));
  EXPECT_EQ(pool_->restarts(), 1);
}

TEST_F(WorkerWatchTest, TheOthersGoOnWhileOneHangs) {
  config_.workers.hang_timeout_s = 4;  // the other one must not be starved for half of it
  start(scripted("one-hangs-once"));
  ASSERT_EQ(hung(1).size(), 1u);
  const std::uint64_t before = board_->row(1).get(Counter::kFrames);
  EXPECT_TRUE(eventually([&] { return board_->row(1).get(Counter::kFrames) > before; }));
  ASSERT_TRUE(see(Kind::kRestarted));
  EXPECT_EQ(board_->row(1).incarnation(), 0);
  for (const WorkerEvent& event : events_) {
    EXPECT_TRUE(event.kind != Kind::kHung || event.worker == 0) << event.message;
  }
}

TEST_F(WorkerWatchTest, AWorkerThatGoesOnInTimeIsLeftAlone) {
  config_.workers.count = 1;
  config_.workers.hang_timeout_s = 4;
  start(scripted("pause"));
  ASSERT_EQ(hung(1).size(), 1u);
  const auto pid = static_cast<pid_t>(board_->row(0).identity().pid);
  ::kill(pid, SIGUSR1);
  const std::uint64_t before = board_->row(0).get(Counter::kFrames);
  ASSERT_TRUE(eventually([&] { return board_->row(0).get(Counter::kFrames) > before; }));
  // Longer than what was left of its time.
  const Deadline later = Deadline::in(2500ms);
  while (!later.passed()) ::usleep(10000);
  EXPECT_EQ(board_->row(0).identity().pid, pid);
  EXPECT_EQ(hung(1).size(), 1u);
  EXPECT_EQ(pool_->restarts(), 0);
}

TEST_F(WorkerWatchTest, AStoppedWorkerCountsAsHungAndHasNoStack) {
  config_.workers.count = 1;
  config_.workers.hang_timeout_s = 3;
  start(scripted("good"));
  ASSERT_TRUE(eventually([&] { return all_running(); }));
  ::kill(static_cast<pid_t>(board_->row(0).identity().pid), SIGSTOP);
  ASSERT_TRUE(see(Kind::kRestarted));
  EXPECT_THAT(message(Kind::kHung), AllOf(HasSubstr("state T (stopped)"), Not(HasSubstr("stack"))));
}

TEST_F(WorkerWatchTest, WhatEachWorkerDoesIsTold) {
  config_.workers.count = 2;
  start(scripted("one-hangs-once"));
  ASSERT_TRUE(eventually([&] {
    return board_->row(0).get(Counter::kFrames) == 93512 && board_->row(1).get(Counter::kFrames) > 93512;
  }));
  board_->row(1).set(Counter::kLastStepNs, 1);
  const auto lines = pool_->describe_workers();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[0], AllOf(HasSubstr("worker 0 (pid "), HasSubstr(": running, last heartbeat "),
                              HasSubstr("nothing pushed yet"), HasSubstr("93 512 frames"),
                              ContainsRegex("; state [RSD] \\(")));
  EXPECT_THAT(lines[1], AllOf(HasSubstr("worker 1 (pid "), HasSubstr("last push ")));
}

TEST_F(WorkerPoolTest, AWorkerThatNeverFinishesStartingIsKilledAndRestarted) {
  config_.workers.count = 1;
  config_.workers.start_timeout_s = 1;
  for (const char* behaviour : {"hang-at-start-once", "hang-described-once"}) {
    events_.clear();
    start(scripted(behaviour));
    ASSERT_TRUE(see(Kind::kRestarted)) << behaviour;
    EXPECT_THAT(message(Kind::kHung), HasSubstr("workers.start_timeout_s is 1 s")) << behaviour;
    ASSERT_TRUE(eventually([&] { return all_running(); })) << behaviour;
    pool_.reset();
    board_ = RunBoard::create(segment_name(run_, std::string(behaviour)), 4);
  }
}

TEST_F(WorkerPoolTest, WaitingForTheLearnerIsNoHang) {
  config_.workers.count = 1;
  config_.workers.start_timeout_s = 3;
  config_.workers.hang_timeout_s = 0.5;
  pool_ = std::make_unique<WorkerPool>(config_, scripted("good"), *board_);
  ASSERT_TRUE(eventually([&] { return board_->row(0).phase() == Phase::kDescribed; }));
  const Deadline late = Deadline::in(3500ms);
  while (!late.passed()) ::usleep(10000);
  EXPECT_EQ(find(Kind::kHung), nullptr) << message(Kind::kHung);
  EXPECT_EQ(pool_->alive(), 1);
}

TEST_F(WorkerPoolTest, AFailedWorkerThatDoesNotEndIsEndedAndItsErrorTold) {
  config_.workers.count = 1;
  config_.workers.hang_timeout_s = 1;
  start(scripted("fail-and-stay-once"));
  ASSERT_TRUE(see(Kind::kRestarted));
  EXPECT_THAT(message(Kind::kHung), HasSubstr("said its end but was still there"));
  EXPECT_THAT(message(Kind::kFailed), HasSubstr("an error before the hang"));
}

}  // namespace
}  // namespace gristmill
