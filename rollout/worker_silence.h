#pragma once

// How long a worker may go without progress, which depends on where it stands. A hang cannot be told from
// slowness: the time-outs are the user's.

#include <chrono>
#include <optional>
#include <string>

#include "core/run_board.h"
#include "rollout/config.h"

namespace gristmill {

// What the supervisor has seen of one worker's progress.
struct Progress {
  using TimePoint = std::chrono::steady_clock::time_point;
  Phase phase = Phase::kStarting;
  TimePoint phase_since;  // seen in it first
  TimePoint beat;         // its last heartbeat
};

// The patience with a worker: its silence began at `since`, and may last `limit_s`.
struct Patience {
  Progress::TimePoint since;
  double limit_s;
  bool heartbeats;  // it is silent because its heartbeat stands still, as in a step that does not return
};

// `ready_since`: when the learner was ready, if it is; until then waiting for it is what a worker should do.
// `awake_since`: silence is counted from here at most, because the supervisor itself did not run before.
// nullopt: nothing is expected of it now.
std::optional<Patience> patience_with(const Progress& worker, const Config::Workers& config,
                                      std::optional<Progress::TimePoint> ready_since,
                                      Progress::TimePoint awake_since);

// What a worker in this phase that was silent so long did wrong: "gave no sign of life for 30 s
// (workers.hang_timeout_s is 30 s)".
std::string describe_silence(Phase phase, double silent_s, const Config::Workers& config);

}  // namespace gristmill
