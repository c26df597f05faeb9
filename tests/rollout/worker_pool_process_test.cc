#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>

#include "core/process_identity.h"
#include "tests/rollout/worker_pool_fixture.h"

namespace gristmill {
namespace {

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
  Forked parent = start(scripted("good"), true, 3);
  ASSERT_TRUE(eventually([&] { return shared_->step == 1; }));
  ::kill(-parent.pid(), SIGSTOP);
  ASSERT_TRUE(parent.wait_stopped());
  ::usleep(4'000'000);  // the silence itself: more than the time-out
  ::kill(-parent.pid(), SIGCONT);
  ::usleep(600'000);  // for several looks at the workers
  shared_->step = 2;
  EXPECT_TRUE(parent.succeeds());
}

}  // namespace
}  // namespace gristmill
