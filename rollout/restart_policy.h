#pragma once

// What becomes of a worker that ended: a restart after a while, or the end of the run. Decides only: it
// starts nothing, and reads no clock.

#include <chrono>
#include <deque>
#include <string>

#include "core/run_board.h"
#include "rollout/config.h"

namespace gristmill {

// How one incarnation of a worker ended.
struct WorkerEnd {
  std::string account;             // "worker 1 (pid 4711) was killed by SIGKILL after 93 512 frames"
  Phase phase = Phase::kStarting;  // on its row, at the end
  bool entered = false;            // its process came as far as writing itself into its row
  bool described = false;          // … made its environments
  bool ran = false;                // … stepped them
  int exit_status = -1;            // -1: killed by a signal, or never started
  bool repeats_itself = false;     // known beforehand: what it is run from is not there, or cannot be loaded
};

// Of one worker, all incarnations.
class RestartPolicy {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  RestartPolicy(const Config::Workers& config, int index) : config_(config), index_(index) {}

  struct Verdict {
    bool restart = false;
    std::chrono::duration<double> delay{};  // before the restart: doubles with each within the window
    std::string why_not{};                  // for people: what happened, and how to mend it
  };
  // Call once for each end. Gives up
  // - at once, when the worker failed at its first start before it had made its environments, or could not
  //   be executed at all (no such program, a shared library missing): a restart would only repeat it;
  // - the second time in a row that it failed before its first step, or exited before it had a chance to
  //   say anything, with the same status;
  // - when it ended more than workers.max_restarts times within workers.restart_window_s.
  Verdict judge(const WorkerEnd& end, TimePoint now);

  // 0 at first, one more with each verdict of a restart.
  int incarnation() const { return incarnation_; }

 private:
  Verdict repeated(const std::string& account, const std::string& how_far) const;
  Verdict too_often() const;

  const Config::Workers& config_;
  const int index_;
  int incarnation_ = 0;
  std::deque<TimePoint> ends_;        // within the window
  std::deque<std::string> accounts_;  // the last few
  int failures_before_running_ = 0;   // in a row
  int mute_exits_ = 0;                // in a row, with mute_status_
  int mute_status_ = -1;
};

}  // namespace gristmill
