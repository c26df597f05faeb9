#pragma once

// What a process of a run counts and measures on its row of the board, by name.

#include <array>
#include <cstddef>
#include <cstdint>

namespace gristmill {

// Values are stored in shared memory: append only. *Ns are nanoseconds spent.
enum class Counter : std::uint32_t {
  kFrames,         // environment steps; the learner: learned from or dropped
  kEpisodes,       // finished
  kTrajectories,   // put; the learner: taken
  kEnvironmentNs,  // in step and reset
  kInferenceNs,    // policy forward and sampling
  kSpaceWaitNs,    // waiting for a place in the queue
  kCopyNs,         // put's copy
  kParametersNs,   // watching and pinning
  kFirstStepNs,    // monotonic clock at the first environment step; 0 before
  kLastStepNs,     // monotonic clock at the last one put
  kVersion,        // parameters in use; the learner: published
  kAssembleNs,     // beginning trajectories, carrying over what the next ones start with
  kBatchWaitNs,    // the learner's, from here on: waiting for trajectories
  kBatchViewNs,    // looking at a batch: lags, episodes, gathering where rows are left out; release
  kForwardNs,
  kLossNs,  // advantages and the loss with its gradient
  kBackwardNs,
  kOptimiserNs,
  kPublishNs,
  kLogNs,         // log lines, checkpoints, events
  kCopiedBytes,   // of trajectories: a worker's into the queue, the learner's out of it
  kUpdates,       // batches learned from
  kDroppedStale,  // trajectories
  kQueueSize,     // trajectories in the queue, as last seen …
  kQueueSizeNs,   // … at this time of the monotonic clock: of all rows, the latest holds
  kMeanReturn,    // of the last 100 episodes: a double's bits; 0 before
  kLearnNs,       // a learner's that is a loop of the user's own: while it had a batch
  kCount,
};
inline constexpr std::size_t kCounterCount = static_cast<std::size_t>(Counter::kCount);

// What has a histogram. The stages first, in which a process spends its time, in nanoseconds; then others,
// in the unit given. Values are stored in shared memory: append only within each kind, and renumbering
// changes the board's layout hash.
enum class Measure : std::uint32_t {
  kEnvironment,  // a worker's: each vector step
  kInference,
  kAssemble,
  kSpaceWait,
  kCopy,
  kParameters,
  kBatchWait,  // the learner's
  kBatchView,
  kForward,  // each minibatch
  kLoss,
  kBackward,
  kOptimiser,
  kPublish,
  kLog,
  kLearn,             // each batch, in a loop of the user's own: what she does with it, publishing left out
  kQueueFill,         // trajectories there when the learner took a batch
  kPolicyLag,         // versions, of each trajectory learned from
  kParameterLatency,  // ns from the learner's publish to a worker's first action under the version
  kCount,
};
inline constexpr std::size_t kMeasureCount = static_cast<std::size_t>(Measure::kCount);
inline constexpr std::size_t kStageCount = static_cast<std::size_t>(Measure::kQueueFill);
inline constexpr std::size_t kWorkerStages = static_cast<std::size_t>(Measure::kBatchWait);

inline constexpr std::array<const char*, kCounterCount> kCounterNames = {
    "frames",        "episodes",      "trajectories",  "environment_ns", "inference_ns",  "space_wait_ns",
    "copy_ns",       "parameters_ns", "first_step_ns", "last_step_ns",   "version",       "assemble_ns",
    "batch_wait_ns", "batch_view_ns", "forward_ns",    "loss_ns",        "backward_ns",   "optimiser_ns",
    "publish_ns",    "log_ns",        "copied_bytes",  "updates",        "dropped_stale", "queue_size",
    "queue_size_ns", "mean_return",   "learn_ns"};

inline constexpr std::array<const char*, kMeasureCount> kMeasureNames = {
    "environment", "inference",  "assemble", "space_wait", "copy",       "parameters",
    "batch_wait",  "batch_view", "forward",  "loss",       "backward",   "optimiser",
    "publish",     "log",        "learn",    "queue_fill", "policy_lag", "parameter_latency"};

// The counter that sums up a stage's time.
constexpr Counter counter_of(Measure stage) {
  constexpr std::array<Counter, kStageCount> kCounters = {
      Counter::kEnvironmentNs, Counter::kInferenceNs,  Counter::kAssembleNs,  Counter::kSpaceWaitNs,
      Counter::kCopyNs,        Counter::kParametersNs, Counter::kBatchWaitNs, Counter::kBatchViewNs,
      Counter::kForwardNs,     Counter::kLossNs,       Counter::kBackwardNs,  Counter::kOptimiserNs,
      Counter::kPublishNs,     Counter::kLogNs,        Counter::kLearnNs};
  return kCounters[static_cast<std::size_t>(stage)];
}

}  // namespace gristmill
