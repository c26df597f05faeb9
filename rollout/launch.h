#pragma once

// The start of a run: run directory, board, workers. Apart from train() because it needs no torch:
// workers load libtorch on one core while the learner process loads it on another.

#include <memory>
#include <string>

#include "core/run_board.h"
#include "rollout/config.h"
#include "rollout/run_log.h"
#include "rollout/worker_pool.h"

namespace gristmill {

struct LaunchOptions {
  // "--log-level LEVEL" is appended (log.workers_level), and what WorkerPool appends.
  WorkerPool::Command worker_command;
  // Resuming: the run's directory, which must exist, and how often the run was launched before, so
  // that its workers play other episodes than last time. Empty: a new run, in a new directory.
  std::string resume_dir;
  std::int64_t earlier_launches = 0;
};

// Owns what a run has before there is a learner. Destruction stops the workers and removes the
// segments. One thread.
class Launch {
 public:
  // Sweeps dead runs' segments, makes the run directory (mode 0700) with the resolved config.yaml,
  // creates the board and starts the workers, which load and describe their environments meanwhile.
  // Throws ConfigError (the run exists; …), std::runtime_error (the directory cannot be written, a
  // worker cannot be started) and SegmentError; nothing is left running then.
  Launch(const ResolvedConfig& config, const LaunchOptions& options);
  ~Launch();
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

  // The run never began: removes the directory of a new run again, as long as nothing but its
  // config.yaml and its log.txt are in it.
  void abandon() noexcept;

  const Config& config() const { return config_; }
  const std::string& run_dir() const { return run_dir_; }
  std::int64_t earlier_launches() const { return earlier_launches_; }
  RunBoard& board() { return *board_; }
  WorkerPool& pool() { return *pool_; }
  RunLog& log() { return *log_; }

 private:
  void start(const LaunchOptions& options);

  Config config_;
  std::string run_dir_;
  bool resumed_ = false;
  std::int64_t earlier_launches_ = 0;
  std::unique_ptr<RunBoard> board_;
  std::unique_ptr<RunLog> log_;  // outlives the workers
  std::unique_ptr<WorkerPool> pool_;
};

// {path of gristmill-worker} for native environments: next to this executable or library, or
// GRISTMILL_WORKER. Others need {python, "-m", "gristmill.worker"}, which only Python knows.
// Throws std::runtime_error that says where it looked.
WorkerPool::Command native_worker_command();

}  // namespace gristmill
