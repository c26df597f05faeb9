#include "rollout/worker_pool.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/rollout/worker_pool_fixture.h"

namespace gristmill {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using Kind = WorkerEvent::Kind;

TEST_F(WorkerPoolTest, StartsEveryWorkerAndStopsThemInOrder) {
  config_.workers.count = 3;
  start(scripted("good"));
  EXPECT_EQ(pool_->alive(), 3);
  ASSERT_TRUE(eventually([&] { return all_running(); }));
  pool_->stop(20s);
  EXPECT_TRUE(no_child_is_left());
  EXPECT_EQ(pool_->alive(), 0);
  EXPECT_EQ(pool_->restarts(), 0);
  EXPECT_EQ(pool_->failure(), "");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(board_->row(i).phase(), Phase::kStopped);
  EXPECT_EQ(find(Kind::kDied), nullptr) << message(Kind::kDied);
  ASSERT_EQ(events_.size(), 3u);
  for (const WorkerEvent& event : events_) {
    EXPECT_EQ(event.kind, Kind::kStarted);
    EXPECT_EQ(event.pid, board_->row(event.worker).identity().pid);
  }
  pool_->stop(1s);  // again
}

TEST_F(WorkerPoolTest, RefusesACommandThatCannotBeStartedAndLeavesNoChild) {
  const auto refusal = [&](const WorkerPool::Command& command) -> std::string {
    try {
      start(command);
      return "started";
    } catch (const std::runtime_error& error) {
      return error.what();
    }
  };
  EXPECT_THAT(refusal({}), HasSubstr("empty"));
  EXPECT_THAT(refusal({"no-such-program-of-ours"}),
              AllOf(HasSubstr("no-such-program-of-ours"), HasSubstr("PATH")));
  EXPECT_THAT(refusal({"/nowhere/worker"}), AllOf(HasSubstr("/nowhere/worker"), HasSubstr("No such file")));
  // Executable, as far as access() can tell, but not a program.
  const auto path =
      std::filesystem::temp_directory_path() / ("gristmill-no-program-" + std::to_string(::getpid()));
  std::ofstream(path) << "\x01\x02";
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  EXPECT_THAT(refusal({path.string()}), AllOf(HasSubstr(path.string()), HasSubstr("Exec format")));
  std::filesystem::remove(path);
  config_.workers.count = 5;
  EXPECT_THAT(refusal(scripted("good")), AllOf(HasSubstr("5 workers"), HasSubstr("4 rows")));
  EXPECT_TRUE(no_child_is_left());
}

TEST_F(WorkerPoolTest, FindsACommandInThePath) {
  config_.workers.count = 1;
  start({"sh", "-c", "exec sleep 1000"});
  EXPECT_EQ(pool_->alive(), 1);
  pool_->stop(0ms);
  EXPECT_THAT(message(Kind::kDied), HasSubstr("did not stop within"));
}

TEST_F(WorkerPoolTest, WorkersInheritNothingTheyShouldNot) {
  ::unsetenv("OMP_NUM_THREADS");
  ::setenv("MKL_NUM_THREADS", "3", 1);
  ::signal(SIGPIPE, SIG_IGN);
  const int leak = ::open("/dev/zero", O_RDONLY);  // without O_CLOEXEC
  start(scripted("inheritance"));
  ::close(leak);
  ::unsetenv("MKL_NUM_THREADS");
  ::signal(SIGPIPE, SIG_DFL);
  ASSERT_TRUE(eventually([&] { return all_running(); }));
  EXPECT_EQ(
      board_->row(0).description(),
      "OMP_NUM_THREADS=1;MKL_NUM_THREADS=3;SIGINT=ignored;SIGPIPE=default;blocked=0;stdin=/dev/null;fds=0;");
}

TEST_F(WorkerPoolTest, AKilledWorkerIsNamedAndRestartedWhileTheOthersGoOn) {
  start(scripted("good"));
  ASSERT_TRUE(eventually([&] { return all_running() && board_->row(1).get(Counter::kFrames) >= 93512; }));
  const auto pid = static_cast<pid_t>(board_->row(1).identity().pid);
  const auto other = board_->row(0).identity();
  ::kill(pid, SIGKILL);
  ASSERT_TRUE(see(Kind::kRestarted));
  const WorkerEvent died = *find(Kind::kDied);
  EXPECT_EQ(died.worker, 1);
  EXPECT_EQ(died.pid, pid);
  EXPECT_THAT(died.message,
              AllOf(HasSubstr("worker 1 (pid " + std::to_string(pid) + ") was killed by SIGKILL after "),
                    HasSubstr(" frames; restarting in 0.01 s")));
  EXPECT_EQ(pool_->restarts(), 1);
  ASSERT_TRUE(eventually([&] { return all_running() && pool_->alive() == 2; }));
  EXPECT_EQ(board_->row(1).incarnation(), 1);
  EXPECT_NE(board_->row(1).identity().pid, pid);
  EXPECT_EQ(board_->row(0).identity(), other);
  EXPECT_EQ(pool_->failure(), "");
}

TEST_F(WorkerPoolTest, ACrashIsToldBySignalAndFrames) {
  start(scripted("segfault-once"));
  ASSERT_TRUE(see(Kind::kDied));
  EXPECT_THAT(message(Kind::kDied), ContainsRegex("was killed by SIGSEGV.* after 93 512 frames; restarting"));
}

TEST_F(WorkerPoolTest, PlacesADeadWorkerClaimedAreRecoveredAtOnce) {
#ifndef GRISTMILL_FAULT_POINTS
  GTEST_SKIP() << "needs fault points";
#endif
  config_.workers.count = 1;
  const auto queue = TrajectoryQueue::create(segment_name(run_, "queue"), {{"x", DType::kFloat32, {4}}}, 8);
  pool_ = std::make_unique<WorkerPool>(config_, scripted("claim-once"), *board_);
  pool_->watch_queue(queue.get());
  board_->announce_ready();
  ASSERT_TRUE(see(Kind::kDied));
  EXPECT_THAT(message(Kind::kDied), HasSubstr("SIGKILL"));
  EXPECT_EQ(queue->statistics().abandoned, 2u);
}

TEST_F(WorkerPoolTest, StopKillsWhoDoesNotListen) {
  start(scripted("deaf"));
  ASSERT_TRUE(eventually([&] { return all_running(); }));
  pool_->stop(100ms);
  EXPECT_TRUE(no_child_is_left());
  EXPECT_EQ(pool_->alive(), 0);
  EXPECT_THAT(message(Kind::kDied), HasSubstr("did not stop within 0.1 s of being told"));
  EXPECT_EQ(pool_->restarts(), 0);
}

}  // namespace
}  // namespace gristmill
