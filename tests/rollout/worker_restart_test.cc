// Which ends of a worker are mended by a restart, and which end the run.

#include <signal.h>
#include <unistd.h>

#include <filesystem>

#include "tests/rollout/worker_pool_fixture.h"

namespace gristmill {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using Kind = WorkerEvent::Kind;

TEST_F(WorkerPoolTest, ACrashLoopEndsTheRestartsWithAFullAccount) {
  config_.workers.count = 1;
  config_.workers.max_restarts = 3;
  start(scripted("crash"));
  ASSERT_TRUE(gives_up());
  EXPECT_EQ(pool_->restarts(), 3);
  EXPECT_EQ(pool_->alive(), 0);
  EXPECT_THAT(pool_->failure(),
              AllOf(HasSubstr("worker 0 ended 4 times within 60 s"), HasSubstr("workers.max_restarts is 3"),
                    HasSubstr("ended with exit status 3 after 93 512 frames")));
  EXPECT_EQ(message(Kind::kGaveUp), pool_->failure());
  // The wait before a restart doubles.
  std::string all;
  for (const WorkerEvent& event : events_) all += event.message + "\n";
  EXPECT_THAT(all, ContainsRegex("in 0.01 s\n(.*\n)*.*in 0.02 s\n(.*\n)*.*in 0.04 s\n"));
  EXPECT_THAT(all, testing::Not(HasSubstr("0.08")));
}

TEST_F(WorkerPoolTest, AFailureAtTheFirstStartIsNotRepeated) {
  start(scripted("bad-env"));
  ASSERT_TRUE(gives_up());
  EXPECT_EQ(pool_->restarts(), 0);
  EXPECT_THAT(pool_->failure(),
              AllOf(HasSubstr("unknown environment 'cartpoel'"), HasSubstr("worker "), HasSubstr("env.id")));
  EXPECT_TRUE(see(Kind::kFailed));
}

TEST_F(WorkerPoolTest, AFailureBeforeTheFirstStepIsTriedAgainOnce) {
  config_.workers.count = 1;
  start(scripted("fail-described"));
  ASSERT_TRUE(gives_up());
  EXPECT_EQ(pool_->restarts(), 1);
  EXPECT_THAT(pool_->failure(), AllOf(HasSubstr("no such action space"), HasSubstr("twice in a row")));
}

TEST_F(WorkerPoolTest, AFatalErrorEndsTheRestartsAtOnce) {
  config_.workers.count = 1;
  start(scripted("fatal"));
  ASSERT_TRUE(gives_up());
  EXPECT_EQ(pool_->restarts(), 0);
  EXPECT_THAT(pool_->failure(), HasSubstr("reward is NaN at step 7"));
}

TEST_F(WorkerPoolTest, AFatalErrorIsToldBeforeItsProcessHasEnded) {
  config_.workers.count = 1;
  config_.workers.hang_timeout_s = 3600;
  start(scripted("fatal-and-stay"));
  ASSERT_TRUE(gives_up());
  EXPECT_EQ(pool_->alive(), 1);
  EXPECT_THAT(pool_->failure(), HasSubstr("failed after 93 512 frames: reward is NaN at step 7"));
}

TEST_F(WorkerPoolTest, AFatalErrorCountsThoughTheRunEndsMeanwhile) {
  config_.workers.count = 1;
  start(scripted("fatal-and-stay"));
  ASSERT_TRUE(eventually([&] { return board_->row(0).phase() == Phase::kFatal; }));
  pool_->stop(0ms);
  EXPECT_THAT(pool_->failure(), HasSubstr("reward is NaN at step 7"));
}

TEST_F(WorkerPoolTest, AnErrorWhileRunningIsToldWithItsTextAndTheWorkerRestarted) {
  start(scripted("fail-once"));
  ASSERT_TRUE(see(Kind::kRestarted));
  EXPECT_THAT(message(Kind::kFailed),
              AllOf(HasSubstr("failed after 93 512 frames: Traceback"),
                    HasSubstr("ValueError: at step 90000"), HasSubstr("restarting in")));
  EXPECT_EQ(pool_->failure(), "");
}

TEST_F(WorkerPoolTest, AWorkerThatLeavesUntoldIsRestarted) {
  config_.workers.count = 1;
  start(scripted("leave-once"));
  ASSERT_TRUE(see(Kind::kRestarted));
  EXPECT_THAT(message(Kind::kDied),
              HasSubstr("exit status 0 after 93 512 frames although nobody had told it"));
}

TEST_F(WorkerPoolTest, AWorkerThatLeavesBecauseTheQueueIsClosedIsNot) {
  config_.workers.count = 1;
  const auto queue = TrajectoryQueue::create(segment_name(run_, "queue"), {{"x", DType::kFloat32, {4}}}, 8);
  queue->close();
  pool_ = std::make_unique<WorkerPool>(config_, scripted("leave-once"), *board_);
  pool_->watch_queue(queue.get());
  board_->announce_ready();
  ASSERT_TRUE(eventually([&] { return pool_->alive() == 0; }));
  pool_->stop(1s);
  EXPECT_EQ(find(Kind::kDied), nullptr) << message(Kind::kDied);
  EXPECT_EQ(pool_->restarts(), 0);
}

TEST_F(WorkerPoolTest, StopInTheMiddleOfARestartStartsNothing) {
  config_.workers.restart_backoff_s = 5;
  start(scripted("crash"));
  ASSERT_TRUE(see(Kind::kDied));
  pool_->stop(100ms);
  EXPECT_TRUE(no_child_is_left());
  EXPECT_EQ(pool_->restarts(), 0);
}

TEST_F(WorkerPoolTest, AProgramThatLacksASharedLibraryEndsTheRunAtOnceAndNamesIt) {
  config_.workers.count = 1;
  start({NEEDS_ABSENT_LIBRARY});
  ASSERT_TRUE(gives_up());
  EXPECT_EQ(pool_->restarts(), 0);
  EXPECT_THAT(pool_->failure(), AllOf(HasSubstr("exit status 127"),
                                      HasSubstr("these shared libraries were not found: libabsent_library"),
                                      HasSubstr(NEEDS_ABSENT_LIBRARY)));
}

TEST_F(WorkerPoolTest, AScriptThatDoesNotFindItsProgramEndsTheRunAtOnce) {
  config_.workers.count = 1;
  start({"sh", "-c", "no-such-program-of-ours"});
  ASSERT_TRUE(gives_up());
  EXPECT_EQ(pool_->restarts(), 0);
  EXPECT_THAT(pool_->failure(), AllOf(HasSubstr("exit status 127"), HasSubstr("was not found")));
}

TEST_F(WorkerPoolTest, AnExitWithoutAWordIsTriedAgainOnce) {
  config_.workers.count = 1;
  start(scripted("mute"));
  ASSERT_TRUE(gives_up());
  EXPECT_EQ(pool_->restarts(), 1);
  EXPECT_THAT(pool_->failure(), AllOf(HasSubstr("exit status 9"), HasSubstr("twice in a row")));
}

TEST_F(WorkerPoolTest, AProgramThatHasGoneByTheTimeOfARestartEndsTheRun) {
  config_.workers.count = 1;
  namespace fs = std::filesystem;
  const fs::path copy = fs::temp_directory_path() / ("gristmill-worker-" + std::to_string(::getpid()));
  fs::copy_file(SCRIPTED_WORKER, copy, fs::copy_options::overwrite_existing);
  config_.workers.restart_backoff_s = 0.3;
  start({copy.string(), "good"});
  ASSERT_TRUE(eventually([&] { return all_running(); }));
  fs::remove(copy);
  ::kill(static_cast<pid_t>(board_->row(0).identity().pid), SIGKILL);
  ASSERT_TRUE(gives_up());
  EXPECT_THAT(pool_->failure(), AllOf(HasSubstr("was not restarted: cannot start"), HasSubstr(copy.string()),
                                      HasSubstr("No such file")));
  EXPECT_EQ(pool_->restarts(), 0);
}

}  // namespace
}  // namespace gristmill
