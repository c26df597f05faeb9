#pragma once

// A whole run: workers, queue, box, learner, checkpoints. The main loop is learner/train.cc.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "rollout/config.h"
#include "rollout/worker_pool.h"

namespace gristmill {

// One log interval's figures, under the names users of this field know ("rollout/ep_rew_mean",
// "time/fps", "train/approx_kl", …). A figure that does not exist yet is absent.
using Metrics = std::map<std::string, double>;

struct TrainHooks {
  // All are called on the thread that called train(), between batches.
  std::function<void(const Metrics&)> on_metrics;       // every log.interval_s, and at the end
  std::function<void(const WorkerEvent&)> on_event;     // a worker started, died, hung, …
  std::function<void(const std::string&)> on_message;   // "checkpoint written", "no worker has …"
  std::function<bool()> should_stop;                    // polled at least every 50 ms; true: orderly end
};

struct TrainResult {
  enum class End { kFrames, kSolved, kInterrupted, kFailed };
  End end = End::kFrames;
  std::string error;               // kFailed: what, where, and how to mend it
  std::int64_t frames = 0;         // environment steps learned from, resumed ones included
  double wall_s = 0;               // of train()
  double fps = 0;                  // this launch's frames over first to last environment step
  double launch_to_first_step_s = 0;  // from process start
  double mean_return = 0;          // last 100 episodes
  bool solved = false;             // stop_at_return reached
  double solved_at_s = 0;          // from process start
  double policy_lag_p50 = 0, policy_lag_max = 0;  // versions
  std::int64_t restarts = 0, dropped_stale = 0;
  std::int64_t version = 0;
  std::string parameter_hash;      // 16 hex digits
  std::string run_dir;
};

struct TrainOptions {
  WorkerPool::Command worker_command;
  std::string resume_from;  // checkpoint directory; empty: start afresh
};

// Blocks until the run ends. Throws ConfigError, SegmentError and std::runtime_error before anything
// has started (the queue does not fit, the run exists, …); afterwards errors are a kFailed result,
// with workers stopped, shared memory removed and the last good checkpoint in place.
TrainResult train(const ResolvedConfig& config, const TrainOptions& options, const TrainHooks& hooks);

// Seconds since this process started.
double process_age_s();

}  // namespace gristmill
