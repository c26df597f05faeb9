#pragma once

// What is said of a worker: who it is, how it ended, what it does. Reads its row of the board and /proc;
// any thread.

#include <sys/types.h>

#include <string>

#include "core/run_board.h"

namespace gristmill {

// "worker 1 (pid 4711)"; without the pid when it is 0.
std::string worker_name(int index, pid_t pid);

// "0.25 s", three digits.
std::string in_seconds(double seconds);

// " after 93 512 frames"
std::string after_frames(const RunBoard::Row& row);

// "failed after 93 512 frames: " and what the worker said of it; of one that said nothing, `exit`.
std::string describe_failure(const RunBoard::Row& row, const std::string& exit);

// What becomes of the sentence "worker 1 …" when it ended with this waitpid status and nobody killed it.
std::string describe_end(const RunBoard::Row& row, int status);

// One line on what a worker does now: "worker 1 (pid 4711): running, last heartbeat 12 s ago, last push
// 12 s ago, 93 512 frames; state S (sleeping), in futex_wait".
std::string describe_worker(const RunBoard::Row& row, int index);

}  // namespace gristmill
