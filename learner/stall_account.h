#pragma once

// What the learner says instead of waiting silently.

#include <string>

#include "core/trajectory_queue.h"
#include "rollout/config.h"
#include "rollout/worker_pool.h"

namespace gristmill {

// That `what` ("no worker has pushed a trajectory") has lasted so long, how many workers are alive, and for
// each its last heartbeat and what it is doing. `queue`: nullptr before there is one.
std::string describe_stall(const std::string& what, double silent_s, const Config& config,
                           const WorkerPool& pool, const TrajectoryQueue* queue);

}  // namespace gristmill
