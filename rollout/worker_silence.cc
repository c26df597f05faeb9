#include "rollout/worker_silence.h"

#include <algorithm>

#include "rollout/worker_account.h"

namespace gristmill {

std::optional<Patience> patience_with(const Progress& worker, const Config::Workers& config,
                                      std::optional<Progress::TimePoint> ready_since,
                                      Progress::TimePoint awake_since) {
  const auto from = [&](Progress::TimePoint then) { return std::max(then, awake_since); };
  switch (worker.phase) {
    case Phase::kEmpty:
    case Phase::kStarting:
      return Patience{from(worker.phase_since), config.start_timeout_s, false};
    case Phase::kDescribed:
      if (!ready_since) return std::nullopt;
      return Patience{from(std::max(worker.phase_since, *ready_since)), config.start_timeout_s, false};
    case Phase::kRunning:
      return Patience{from(worker.beat), config.hang_timeout_s, true};
    case Phase::kStopped:
    case Phase::kFailed:
    case Phase::kFatal:
      break;
  }
  return Patience{from(worker.phase_since), config.hang_timeout_s, false};
}

std::string describe_silence(Phase phase, double silent_s, const Config::Workers& config) {
  const std::string silent = in_seconds(silent_s);
  const std::string start = " (workers.start_timeout_s is " + in_seconds(config.start_timeout_s) + ")";
  switch (phase) {
    case Phase::kEmpty:
    case Phase::kStarting:
      return "had not made its environments " + silent + " after its start" + start;
    case Phase::kDescribed:
      return "had not begun to step " + silent + " after the learner was ready" + start;
    case Phase::kRunning:
      return "gave no sign of life for " + silent + " (workers.hang_timeout_s is " +
             in_seconds(config.hang_timeout_s) + ")";
    case Phase::kStopped:
    case Phase::kFailed:
    case Phase::kFatal:
      break;
  }
  return "said its end but was still there " + silent + " later";
}

}  // namespace gristmill
