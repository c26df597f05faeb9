#include "rollout/worker_pool.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/process_identity.h"
#include "core/segment.h"
#include "tests/core/forked.h"

namespace gristmill {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using Kind = WorkerEvent::Kind;

// scripted_worker's path is defined by CMake.
WorkerPool::Command scripted(const std::string& behaviour) { return {SCRIPTED_WORKER, behaviour}; }

bool no_child_is_left() { return ::waitpid(-1, nullptr, WNOHANG) < 0 && errno == ECHILD; }

class WorkerPoolTest : public testing::Test {
 protected:
  WorkerPoolTest() {
    static int number = 0;
    run_ = "pool-test" + std::to_string(number++);
    board_ = RunBoard::create(segment_name(run_, "board"), 4);
    config_.workers.count = 2;
    config_.workers.restart_backoff_s = 0.01;
  }
  ~WorkerPoolTest() override {
    pool_.reset();
    EXPECT_TRUE(no_child_is_left());
  }

  WorkerPool& start(const WorkerPool::Command& command) {
    pool_ = std::make_unique<WorkerPool>(config_, command, *board_);
    board_->announce_ready();
    return *pool_;
  }
  bool all_running() {
    for (int i = 0; i < config_.workers.count; ++i) {
      if (board_->row(i).phase() != Phase::kRunning) return false;
    }
    return true;
  }
  // Collects events until there is one of this kind.
  bool see(Kind kind) {
    return eventually([&] { return find(kind) != nullptr; });
  }
  const WorkerEvent* find(Kind kind) {
    for (WorkerEvent& event : pool_->take_events()) events_.push_back(std::move(event));
    for (const WorkerEvent& event : events_) {
      if (event.kind == kind) return &event;
    }
    return nullptr;
  }
  std::string message(Kind kind) {
    const WorkerEvent* const event = find(kind);
    return event == nullptr ? "(none)" : event->message;
  }
  bool gives_up() {
    return eventually([&] { return !pool_->failure().empty(); });
  }

  std::string run_;
  Config config_;
  std::unique_ptr<RunBoard> board_;
  std::unique_ptr<WorkerPool> pool_;
  std::vector<WorkerEvent> events_;
};

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

TEST_F(WorkerPoolTest, AHungWorkerIsDescribedKilledAndRestarted) {
  config_.workers.count = 1;
  config_.workers.hang_timeout_s = 1;
  start(scripted("hang-once"));
  ASSERT_TRUE(see(Kind::kRestarted));
  EXPECT_THAT(message(Kind::kHung),
              AllOf(HasSubstr("worker 0 (pid "), HasSubstr("gave no sign of life for 1"),
                    HasSubstr("workers.hang_timeout_s is 1 s"), HasSubstr("state S (sleeping)")));
  EXPECT_THAT(message(Kind::kDied), HasSubstr("because it gave no sign of life"));
  EXPECT_TRUE(eventually([&] { return all_running(); }));
}

TEST_F(WorkerPoolTest, AStoppedWorkerCountsAsHung) {
  config_.workers.count = 1;
  config_.workers.hang_timeout_s = 1;
  start(scripted("good"));
  ASSERT_TRUE(eventually([&] { return all_running(); }));
  ::kill(static_cast<pid_t>(board_->row(0).identity().pid), SIGSTOP);
  ASSERT_TRUE(see(Kind::kRestarted));
  EXPECT_THAT(message(Kind::kHung), HasSubstr("state T (stopped)"));
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
  config_.workers.start_timeout_s = 0.5;
  config_.workers.hang_timeout_s = 0.5;
  pool_ = std::make_unique<WorkerPool>(config_, scripted("good"), *board_);
  ASSERT_TRUE(eventually([&] { return board_->row(0).phase() == Phase::kDescribed; }));
  const Deadline late = Deadline::in(1500ms);
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

TEST_F(WorkerPoolTest, StopKillsWhoDoesNotListen) {
  start(scripted("deaf"));
  ASSERT_TRUE(eventually([&] { return all_running(); }));
  pool_->stop(100ms);
  EXPECT_TRUE(no_child_is_left());
  EXPECT_EQ(pool_->alive(), 0);
  EXPECT_THAT(message(Kind::kDied), HasSubstr("did not stop within 0.1 s of being told"));
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

// The pool in a process of its own, which the test then kills, interrupts or stops.
struct Watched {
  std::array<std::atomic<std::uint64_t>, 2> workers{};
  std::atomic<int> step{0};
};

class WorkerPoolProcess : public testing::Test {
 protected:
  // Runs the pool in a process group of its own, until step is 2; the body's result decides.
  Forked start(const WorkerPool::Command& command, bool enters, double hang_timeout_s = 30) {
    return Forked([=, this] {
      ::setpgid(0, 0);
      const auto board = RunBoard::create(segment_name("pool-process", "board"), 2);
      Config config;
      config.workers.hang_timeout_s = hang_timeout_s;
      WorkerPool pool(config, command, *board);
      board->announce_ready();
      const auto events = pool.take_events();
      const auto running = [&] {
        return !enters ||
               (board->row(0).phase() == Phase::kRunning && board->row(1).phase() == Phase::kRunning);
      };
      if (!eventually(running)) return 1;
      for (const WorkerEvent& event : events) {
        // Packed without a start time where the worker does not enter its row.
        const auto identity = enters ? board->row(event.worker).identity() : ProcessIdentity{event.pid, 0};
        shared_->workers[static_cast<std::size_t>(event.worker)] = identity.pack();
      }
      ::signal(SIGINT, [](int) {});
      shared_->step = 1;
      while (shared_->step != 2) ::usleep(1000);
      for (const WorkerEvent& event : pool.take_events()) {
        std::fprintf(stderr, "unexpected: %s\n", event.message.c_str());
        return 2;
      }
      return pool.alive() == 2 ? 0 : 3;
    });
  }
  pid_t worker(std::size_t index) const {
    return static_cast<pid_t>(ProcessIdentity::unpack(shared_->workers[index]).pid);
  }
  bool gone(std::size_t index) const { return ::kill(worker(index), 0) != 0 && errno == ESRCH; }

  const SharedWithChildren<Watched> shared_;
};

TEST_F(WorkerPoolProcess, KilledTakesItsWorkersAlong) {
  for (const bool enters : {true, false}) {
    shared_->step = 0;
    // The second never calls die_with_parent() itself.
    Forked parent =
        start(enters ? scripted("deaf") : WorkerPool::Command{"sh", "-c", "exec sleep 1000"}, enters);
    ASSERT_TRUE(eventually([&] { return shared_->step == 1; }));
    ASSERT_FALSE(gone(0));
    ASSERT_FALSE(gone(1));
    parent.kill();
    EXPECT_TRUE(eventually([&] { return gone(0) && gone(1); }));
  }
  sweep_segments();
}

TEST_F(WorkerPoolProcess, CtrlCToTheWholeGroupEndsNoWorker) {
  Forked parent = start(scripted("good"), true);
  ASSERT_TRUE(eventually([&] { return shared_->step == 1; }));
  for (int i = 0; i < 5; ++i) {
    ::kill(-parent.pid(), SIGINT);
    ::usleep(20000);
  }
  EXPECT_FALSE(gone(0));
  EXPECT_FALSE(gone(1));
  shared_->step = 2;
  EXPECT_TRUE(parent.succeeds());
}

TEST_F(WorkerPoolProcess, StoppedAndContinuedAsAWholeFindsNobodyHung) {
  Forked parent = start(scripted("good"), true, 1.5);
  ASSERT_TRUE(eventually([&] { return shared_->step == 1; }));
  ::kill(-parent.pid(), SIGSTOP);
  ASSERT_TRUE(parent.wait_stopped());
  ::usleep(3'000'000);  // the silence itself: twice the time-out
  ::kill(-parent.pid(), SIGCONT);
  ::usleep(600'000);  // for several looks at the workers
  shared_->step = 2;
  EXPECT_TRUE(parent.succeeds());
}

}  // namespace
}  // namespace gristmill
