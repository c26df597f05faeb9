#pragma once

// The rollout worker: environments ⇄ policy → trajectories → queue, until the run ends. The main
// loop is RolloutWorker::run() in rollout/worker.cc.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "rollout/config.h"
#include "rollout/environment.h"

namespace gristmill {

// Makes the environments of one worker, the i-th seeded from stream (seed, first_index + i). May
// throw, std::invalid_argument for what a restart would not mend; the text reaches the learner
// through the worker's board row.
using EnvironmentFactory = std::function<std::unique_ptr<VectorEnvironment>(
    const Config& config, std::uint64_t seed, std::int64_t first_index)>;

// The whole life of worker `index` of the run whose RunBoard is `board`: makes its environments,
// describes them on the board, waits for queue and box, and rolls out until told to stop. Returns
// the process's exit status: 0 as told, 1 after an error (which is on the board, with worker and
// seed). Ends at once when the parent process does. Call once per process.
int run_worker(const std::string& board, int index, const EnvironmentFactory& make_environments);

// Segment names of a run, from its board's: "<prefix>.board" -> "<prefix>.queue", "<prefix>.box".
std::string queue_name(const std::string& board);
std::string box_name(const std::string& board);

}  // namespace gristmill
