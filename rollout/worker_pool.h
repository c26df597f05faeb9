#pragma once

// Starts the worker processes of a run, watches them, restarts what dies, stops them. Workers are
// started by exec, never by forking a process that has run torch; they end when this process does
// (pdeathsig), whatever killed it. No torch here.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/run_board.h"
#include "core/trajectory_queue.h"
#include "rollout/config.h"

namespace gristmill {

// What happened to a worker, in one line for people ("worker 1 (pid 4711) was killed by SIGKILL
// after 93 512 frames; restarting in 0.1 s") and as fields for programs.
struct WorkerEvent {
  // kHung: gives no sign of life, with its stack if to be had; told after half of workers.hang_timeout_s, and
  // again when it is killed.
  enum class Kind { kStarted, kDied, kFailed, kHung, kRestarted, kGaveUp };
  Kind kind = Kind::kStarted;
  int worker = 0;
  std::int64_t pid = 0;
  std::string message;
};

class WorkerPool {
 public:
  // The command that runs one worker; "--board NAME --index I" is appended. Native environments:
  // {path of gristmill-worker}; others: {python, "-m", "gristmill.worker"}.
  using Command = std::vector<std::string>;

  // Starts config.workers.count workers at once, on rows 0 … count-1 of `board`, from a thread of
  // its own that lives as long as the pool. `board` must outlive the pool. Throws
  // std::runtime_error when the command cannot be started.
  WorkerPool(const Config& config, Command command, RunBoard& board);
  // stop() with a grace of 2 s.
  ~WorkerPool();

  // So that a death's claimed places are recovered at once. `queue` must outlive the pool.
  void watch_queue(TrajectoryQueue* queue);

  // Events since the last call, in order. Any thread.
  std::vector<WorkerEvent> take_events();
  // Living workers, and restarts so far. Any thread.
  int alive() const;
  std::int64_t restarts() const;
  // Set when restarts are used up (max_restarts within the window), or a worker failed in a way that
  // a restart cannot mend (bad environment id); says why. Empty while all is well. Any thread.
  std::string failure() const;

  // For each worker a line on what it does now, and when it last gave a sign of life and last pushed:
  // "worker 1 (pid 4711): running, last heartbeat 12 s ago, …". Any thread.
  std::vector<std::string> describe_workers() const;

  // Asks all to stop (board), waits `grace`, then kills. Idempotent.
  void stop(std::chrono::milliseconds grace);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gristmill
