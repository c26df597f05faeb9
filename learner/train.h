#pragma once

// A whole run after its launch: queue, box, learner, checkpoints. The main loop is Training::run()
// in learner/train.cc.

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "rollout/config.h"
#include "rollout/launch.h"
#include "rollout/worker_pool.h"

namespace gristmill {

// One log interval's figures, under the names users of this field know ("rollout/ep_rew_mean",
// "time/fps", "train/approx_kl", …). A figure that does not exist yet is absent.
using Metrics = std::map<std::string, double>;

// Called on the thread that called train(), between batches; any may be empty.
struct TrainHooks {
  std::function<void(const Metrics&)> on_metrics;      // every log.interval_s, and at the end
  std::function<void(const WorkerEvent&)> on_event;    // a worker started, died, hung, …
  std::function<void(const std::string&)> on_message;  // "checkpoint written", "no worker has …"
  // Warnings and worse that workers said, levels as in LogLevel: "worker 1: …". All is in the run's log.txt.
  std::function<void(int, const std::string&)> on_log;
  std::function<bool()> should_stop;  // polled every 50 ms at least; true: orderly end
};

struct TrainResult {
  enum class End { kFrames, kSolved, kInterrupted, kFailed };
  End end = End::kFrames;
  std::string error;                  // kFailed: what, where, and how to mend it
  std::int64_t frames = 0;            // environment steps taken in, earlier launches included
  double wall_s = 0;                  // of train()
  double fps = 0;                     // this launch's frames over first to last environment step
  double launch_to_first_step_s = 0;  // from process start; 0 when there was none
  double mean_return = 0;             // last 100 episodes
  double mean_length = 0;
  std::int64_t episodes = 0;
  bool solved = false;                            // stop_at_return reached
  double solved_at_s = 0;                         // from process start
  double policy_lag_p50 = 0, policy_lag_max = 0;  // versions, of the trajectories learned from
  std::int64_t dropped_stale = 0;                 // trajectories older than learner.max_policy_lag
  std::int64_t restarts = 0;                      // of workers
  std::int64_t version = 0;                       // of the parameters
  std::string parameter_hash;                     // 16 hex digits
  std::string run_dir;
  std::string checkpoint;  // the last one written; empty when none was
};

// Blocks until the run ends: learns from `launch`'s workers, starting from the checkpoint directory
// `resume_from` unless that is empty. Throws ConfigError, SegmentError (the queue does not fit …),
// CheckpointError and std::runtime_error (a worker cannot make its environments …) before the first
// batch; afterwards errors are a kFailed result, with the last good checkpoint in place. The workers
// are stopped and the segments removed in any case. An exception out of a hook ends the run likewise
// and passes through. Call once per launch.
TrainResult train(Launch& launch, const std::string& resume_from, const TrainHooks& hooks);

// Seconds since this process started.
double process_age_s();

}  // namespace gristmill
