// gristmill-worker: a rollout worker with native environments.
//
//   gristmill-worker --board NAME --index I
//
// Started by WorkerPool; of no use by hand.

#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <string>

#include "rollout/environment.h"
#include "rollout/stack_report.h"
#include "rollout/worker.h"

int main(int argc, char** argv) {
  std::string board;
  int index = -1;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--board") == 0) board = argv[i + 1];
    if (std::strcmp(argv[i], "--index") == 0) index = std::atoi(argv[i + 1]);
  }
  if (board.empty() || index < 0) {
    std::cerr << "usage: gristmill-worker --board NAME --index I (started by a gristmill run)\n";
    return 2;
  }
  gristmill::report_stacks();  // best effort: without it a hang is told without its place
  try {
    return gristmill::run_worker(
        board, index, [](const gristmill::Config& config, std::uint64_t seed, std::int64_t first) {
          return gristmill::make_native_environments(config.env.id, config.workers.envs_per_worker, seed,
                                                     first, config.env.kwargs);
        });
  } catch (const std::exception& error) {
    std::cerr << "gristmill-worker " << index << ": " << error.what() << '\n';
    return 1;
  }
}
