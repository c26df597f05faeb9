#include "rollout/restart_policy.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "rollout/worker_account.h"

namespace gristmill {

namespace {

constexpr double kMaxBackoff = 5;     // seconds
constexpr std::size_t kAccounts = 5;  // of a worker's ends, kept for the account of giving up

}  // namespace

RestartPolicy::Verdict RestartPolicy::judge(const WorkerEnd& end, TimePoint now) {
  const TimePoint window = now - std::chrono::duration_cast<TimePoint::duration>(
                                     std::chrono::duration<double>(config_.restart_window_s));
  while (!ends_.empty() && ends_.front() < window) ends_.pop_front();
  ends_.push_back(now);
  accounts_.push_back(end.account);
  if (accounts_.size() > kAccounts) accounts_.pop_front();

  if (end.ran) {
    failures_before_running_ = 0;
  } else if (end.phase == Phase::kFailed) {
    ++failures_before_running_;
  }
  const bool mute = !end.entered && end.exit_status > 0;
  mute_exits_ = mute ? (end.exit_status == mute_status_ ? mute_exits_ + 1 : 1) : 0;
  mute_status_ = mute ? end.exit_status : -1;

  if (end.repeats_itself) return repeated(end.account, "");
  if (end.phase == Phase::kFailed && !end.ran) {
    if (incarnation_ == 0 && !end.described) return repeated(end.account, "");
    if (failures_before_running_ >= 2) return repeated(end.account, ", twice in a row");
  }
  if (mute_exits_ >= 2) {
    return {.why_not = end.account +
                       "\nIt ended like this twice in a row before it had taken part in the run: a restart "
                       "would only repeat it. What it wrote to stderr (log.txt in the run's directory, or "
                       "the terminal) tells why."};
  }
  if (static_cast<std::int64_t>(ends_.size()) > config_.max_restarts) return too_often();

  // This end counts: 1, 2, 4, … times the first delay.
  const double doublings = static_cast<double>(std::min<std::size_t>(ends_.size() - 1, 30));
  ++incarnation_;
  return {.restart = true,
          .delay = std::chrono::duration<double>(
              std::min(kMaxBackoff, config_.restart_backoff_s * std::exp2(doublings)))};
}

RestartPolicy::Verdict RestartPolicy::repeated(const std::string& account, const std::string& how_far) const {
  return {.why_not = account + "\nIt never got as far as stepping its environments" + how_far +
                     ": a restart would only repeat it. Mend what the error names (env.id, env.kwargs, the "
                     "environment's own code, the installation), then start again."};
}

RestartPolicy::Verdict RestartPolicy::too_often() const {
  std::string why = "worker " + std::to_string(index_) + " ended " + std::to_string(ends_.size()) +
                    " times within " + in_seconds(config_.restart_window_s) +
                    ", and workers.max_restarts is " + std::to_string(config_.max_restarts) + ". The last " +
                    std::to_string(accounts_.size()) + ":\n";
  for (const std::string& line : accounts_) why += "  " + line + "\n";
  why +=
      "Mend the cause (SIGKILL out of nowhere is often the kernel short of memory: see dmesg), or raise "
      "workers.max_restarts.";
  return {.why_not = why};
}

}  // namespace gristmill
