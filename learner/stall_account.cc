#include "learner/stall_account.h"

#include <algorithm>
#include <vector>

#include "rollout/worker_account.h"

namespace gristmill {

namespace {

constexpr std::size_t kMostWorkers = 32;

}  // namespace

std::string describe_stall(const std::string& what, double silent_s, const Config& config,
                           const WorkerPool& pool, const TrajectoryQueue* queue) {
  std::string text = what + " for " + in_seconds(silent_s) + " (workers.stall_warning_s is " +
                     in_seconds(config.workers.stall_warning_s) + "): ";
  const int alive = pool.alive();
  text += alive == 0
              ? "all workers are gone, and the next restart is awaited"
              : std::to_string(alive) + " of " + std::to_string(config.workers.count) + " workers are alive";
  if (queue != nullptr) {
    text += "; " + std::to_string(queue->size()) + " of " +
            std::to_string(config.learner.batch_trajectories) + " trajectories of a batch are there";
  }
  const std::vector<std::string> lines = pool.describe_workers();
  for (std::size_t i = 0; i < std::min(lines.size(), kMostWorkers); ++i) text += "\n  " + lines[i];
  if (lines.size() > kMostWorkers) text += "\n  and " + std::to_string(lines.size() - kMostWorkers) + " more";
  return text;
}

}  // namespace gristmill
