// WorkerSupervisor's watch over progress: who hangs is named with where, then killed.

#include <algorithm>
#include <utility>

#include "rollout/worker_account.h"
#include "rollout/worker_supervisor.h"

namespace gristmill {

namespace {

constexpr std::chrono::milliseconds kLookInterval{250};
// A worker writes its stack at once, if it can at all and has a core. It is there when two looks see the
// same.
constexpr std::chrono::milliseconds kStackLook{100};
constexpr std::chrono::milliseconds kStackPatience{1500};

TimerQueue::Clock::duration to_clock(double seconds) {
  return std::chrono::duration_cast<TimerQueue::Clock::duration>(std::chrono::duration<double>(seconds));
}

// Not stopped and not gone.
bool may_answer(const std::string& activity) {
  return activity.rfind("state R", 0) == 0 || activity.rfind("state S", 0) == 0;
}

std::string where(const std::optional<StackRequest::Stack>& stack) {
  return stack ? ", in " + stack->where : "";
}

std::string frames(const std::optional<StackRequest::Stack>& stack) {
  return stack ? ". Its stack, innermost first:\n" + stack->frames : "";
}

}  // namespace

// Several looks within the shortest time-out.
WorkerSupervisor::Clock::duration WorkerSupervisor::look_interval() const {
  const double shortest = std::min(config_.hang_timeout_s, config_.start_timeout_s);
  return std::min<Clock::duration>(kLookInterval, to_clock(shortest / 4));
}

// Reads every worker's row: a heartbeat, a push or a new phase restarts the timer of who shows it.
void WorkerSupervisor::look() {
  const TimePoint now = Clock::now();
  // Stopped with its workers (Ctrl-Z) or starved: their silence says nothing, so give them the time again.
  if (now - last_look_ > 4 * kLookInterval) awake_since_ = now;
  last_look_ = now;
  if (!ready_since_ && board_.await_ready(Deadline::now())) ready_since_ = now;
  for (int i = 0; i < static_cast<int>(workers_.size()); ++i) {
    if (worker(i).process.running() && !worker(i).killed) look_at(i, now);
  }
}

void WorkerSupervisor::look_at(int index, TimePoint now) {
  Worker& worker = this->worker(index);
  const RunBoard::Row row = board_.row(index);
  give_up_if_fatal(index, worker.process.pid());
  const Phase phase = row.phase();
  if (phase != worker.progress.phase) {
    worker.progress.phase = phase;
    worker.progress.phase_since = now;
  }
  worker.progress.beat = row.last_beat();
  const auto patience = patience_with(worker.progress, config_, ready_since_, awake_since_);
  if (!patience) {
    clear(worker.alarm);
    return;
  }
  if (patience->since != worker.silent_since) {
    worker.silent_since = patience->since;
    worker.warned = false;
    worker.request.reset();
    clear(worker.stack);
  }
  if (worker.request) return;
  const bool first_half = patience->heartbeats && !worker.warned;
  set(worker.alarm, patience->since + to_clock(patience->limit_s / (first_half ? 2 : 1)));
}

void WorkerSupervisor::ask_for_stack(int index) {
  Worker& worker = this->worker(index);
  worker.request.emplace(worker.process.pid());
  worker.asked = Clock::now();
  worker.stack_seen.reset();
  set(worker.stack, worker.asked + kStackLook);
}

// Half of a worker's time without a heartbeat is told; all of it is its end.
void WorkerSupervisor::told_stack(int index) {
  Worker& worker = this->worker(index);
  const pid_t pid = worker.process.pid();
  auto stack = worker.request->collect();
  const std::string activity = describe_activity(pid);
  const bool whole = stack && worker.stack_seen && stack->frames == worker.stack_seen->frames;
  if (!whole && worker.request->was_sent() && may_answer(activity) &&
      Clock::now() - worker.asked < kStackPatience) {
    worker.stack_seen = std::move(stack);
    set(worker.stack, Clock::now() + kStackLook);
    return;
  }
  worker.request.reset();
  const auto patience = patience_with(worker.progress, config_, ready_since_, awake_since_);
  if (!patience) return;
  const double silent = std::chrono::duration<double>(Clock::now() - patience->since).count();
  const std::string doing = where(stack) + "; " + activity;
  if (silent < patience->limit_s) {
    worker.warned = true;
    tell(WorkerEvent::Kind::kHung, index, pid,
         worker_name(index, pid) + " has given no sign of life for " + in_seconds(silent) + doing +
             "; after " + in_seconds(patience->limit_s) +
             " (workers.hang_timeout_s) it is killed and restarted" + frames(stack));
    return;
  }
  const std::string found = describe_silence(worker.progress.phase, silent, config_) + doing;
  tell(WorkerEvent::Kind::kHung, index, pid,
       worker_name(index, pid) + " " + found + "; killing it" + frames(stack));
  // A failed worker that does not end keeps its error as the account of its death.
  if (worker.progress.phase != Phase::kFailed && worker.progress.phase != Phase::kFatal)
    worker.killed_for = found;
  kill(index);
}

}  // namespace gristmill
