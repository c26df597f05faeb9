#include "rollout/worker_supervisor.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "rollout/loader_check.h"
#include "rollout/worker_account.h"

namespace gristmill {

WorkerSupervisor::WorkerSupervisor(const Config::Workers& config, WorkerPool::Command command,
                                   RunBoard& board)
    : config_(config),
      command_(std::move(command)),
      environment_(worker_environment()),
      board_(board),
      look_interval_(look_interval()) {
  for (int i = 0; i < static_cast<int>(config_.count); ++i) workers_.emplace_back(config_, i);
  wake_fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_fd_ < 0) throw std::runtime_error("worker pool: no eventfd: too many open files?");
}

WorkerSupervisor::~WorkerSupervisor() { ::close(wake_fd_); }

void WorkerSupervisor::run(std::promise<void> started) {
  last_look_ = awake_since_ = Clock::now();
  try {
    for (int i = 0; i < static_cast<int>(workers_.size()); ++i) start(i);
    started.set_value();
  } catch (...) {
    workers_.clear();  // kills and reaps those that did start
    alive_ = 0;
    started.set_exception(std::current_exception());
    return;
  }
  set(look_timer_, Clock::now() + look_interval_);
  while (!stopping_) {
    wait(timers_.next_deadline().value_or(TimerQueue::kNever));
    reap();
    look();
    for (const TimerQueue::Id timer : timers_.expire(Clock::now())) ring(timer);
  }
  shut_down();
}

void WorkerSupervisor::start(int index) {
  Worker& worker = this->worker(index);
  const int incarnation = worker.policy.incarnation();
  std::vector<std::string> arguments = command_;
  arguments.insert(arguments.end(), {"--board", board_.name(), "--index", std::to_string(index)});
  board_.row(index).prepare(incarnation);
  const TimePoint now = Clock::now();
  worker.progress = {.phase = Phase::kStarting, .phase_since = now, .beat = now};
  worker.warned = false;
  worker.killed = false;
  worker.killed_for.clear();
  worker.process = ChildProcess::start(arguments, environment_);
  alive_ = count_running();
  const pid_t pid = worker.process.pid();
  if (incarnation == 0) {
    tell(WorkerEvent::Kind::kStarted, index, pid, worker_name(index, pid) + " started");
  } else {
    ++restarts_;
    tell(WorkerEvent::Kind::kRestarted, index, pid,
         worker_name(index, pid) + " restarted (restart " + std::to_string(incarnation) + ")");
  }
}

// Until a worker ends, request_stop(), or `until`.
void WorkerSupervisor::wait(TimePoint until) {
  std::vector<pollfd> fds{{wake_fd_, POLLIN, 0}};
  for (const Worker& worker : workers_) {
    if (!worker.process.running()) continue;
    if (worker.process.pidfd() < 0) until = std::min(until, Clock::now() + std::chrono::milliseconds(20));
    fds.push_back({worker.process.pidfd(), POLLIN, 0});  // a negative one is skipped
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
  if (::poll(fds.data(), fds.size(), static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000))) <= 0)
    return;
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t drained = ::read(wake_fd_, &count, sizeof count);
}

void WorkerSupervisor::reap() {
  for (int i = 0; i < static_cast<int>(workers_.size()); ++i) {
    Worker& worker = this->worker(i);
    const pid_t pid = worker.process.pid();
    const std::optional<int> status = worker.process.try_reap();
    if (!status) continue;
    alive_ = count_running();
    clear(worker.alarm);
    clear(worker.stack);
    worker.request.reset();
    if (TrajectoryQueue* const watched = queue_) watched->recover();
    ended(i, pid, *status);
  }
}

bool WorkerSupervisor::as_told(const RunBoard::Row& row, int status) const {
  if (status != 0 && status != ChildProcess::kUnknownStatus) return false;
  if (stopping_ || board_.stop_requested()) return true;
  const TrajectoryQueue* const watched = queue_;
  return row.phase() == Phase::kStopped && watched != nullptr && watched->closed();
}

void WorkerSupervisor::ended(int index, pid_t pid, int status) {
  const Worker& worker = this->worker(index);
  const RunBoard::Row row = board_.row(index);
  if (as_told(row, status)) return;
  WorkerEnd end{.account = worker_name(index, pid) + " "};
  end.entered = row.identity().pid != 0;
  if (status != ChildProcess::kUnknownStatus && WIFEXITED(status)) end.exit_status = WEXITSTATUS(status);
  if (worker.killed_for.empty()) {
    end.account += describe_end(row, status);
  } else {
    end.account += "was ended" + after_frames(row) + " because it " + worker.killed_for;
  }
  if (!end.entered && never_ran(end.exit_status)) {
    end.repeats_itself = true;
    std::string missing;
    for (const std::string& library : missing_libraries(command_[0], environment_)) {
      missing += (missing.empty() ? "" : ", ") + library;
    }
    end.account += missing.empty() ? ": what it is run from was not found, or may not be executed ("
                                   : ": these shared libraries were not found: " + missing + " (";
    end.account += command_[0] + ")";
  }
  judge(index, pid, std::move(end));
}

// What becomes of a worker that ended: restarted later, or the end of the run.
void WorkerSupervisor::judge(int index, pid_t pid, WorkerEnd end) {
  Worker& worker = this->worker(index);
  const RunBoard::Row row = board_.row(index);
  end.phase = row.phase();
  end.described = row.reached(Phase::kDescribed);
  end.ran = row.reached(Phase::kRunning);
  const bool failed = end.phase == Phase::kFailed || end.phase == Phase::kFatal;
  const auto kind = failed ? WorkerEvent::Kind::kFailed : WorkerEvent::Kind::kDied;

  give_up_if_fatal(index, pid);
  if (given_up_ || stopping_ || board_.stop_requested()) {
    if (!worker.fatal_told) tell(kind, index, pid, end.account);
    return;
  }
  const TimePoint now = Clock::now();
  const RestartPolicy::Verdict verdict = worker.policy.judge(end, now);
  if (!verdict.restart) {
    tell(kind, index, pid, end.account);
    give_up(index, pid, verdict.why_not);
    return;
  }
  set(worker.restart, now + std::chrono::duration_cast<Clock::duration>(verdict.delay));
  tell(kind, index, pid, end.account + "; restarting in " + in_seconds(verdict.delay.count()));
}

// As soon as a worker says it: its process may take a while to end, and what it met must not be lost
// when the run ends meanwhile.
void WorkerSupervisor::give_up_if_fatal(int index, pid_t pid) {
  const RunBoard::Row row = board_.row(index);
  if (given_up_ || row.phase() != Phase::kFatal) return;
  worker(index).fatal_told = true;
  give_up(index, pid,
          worker_name(index, pid) + " " + describe_failure(row, "is ending") +
              "\nA restart would only repeat it.");
}

void WorkerSupervisor::ring(TimerQueue::Id timer) {
  if (timer == look_timer_) {
    set(look_timer_, Clock::now() + look_interval_);
    return;
  }
  for (int i = 0; i < static_cast<int>(workers_.size()); ++i) {
    if (timer == worker(i).restart) return start_again(i);
    if (timer == worker(i).alarm) return ask_for_stack(i);
    if (timer == worker(i).stack) return told_stack(i);
  }
}

void WorkerSupervisor::start_again(int index) {
  if (given_up_ || stopping_ || board_.stop_requested()) return;
  try {
    start(index);
  } catch (const StartError& error) {
    judge(index, 0,
          {.account = worker_name(index, 0) + " was not restarted: " + error.what(),
           .repeats_itself = error.lasting()});
  }
}

void WorkerSupervisor::kill(int index) {
  Worker& worker = this->worker(index);
  worker.killed = true;
  worker.process.kill();
  clear(worker.alarm);
}

// The workers' time counts only while they had a core to use it: on a machine with too much to do they get
// more, up to kMostGraces of it.
void WorkerSupervisor::shut_down() {
  using std::chrono::nanoseconds;
  constexpr int kMostGraces = 5;
  board_.request_stop();
  const nanoseconds grace = std::chrono::milliseconds(grace_ms_);
  const TimePoint told = Clock::now();
  std::vector<nanoseconds> waited;
  for (const Worker& worker : workers_) {
    waited.push_back(worker.process.running() ? waited_for_core(worker.process.pid()) : nanoseconds(0));
  }
  while (count_running() > 0) {
    TimePoint patience = told;
    for (std::size_t i = 0; i < workers_.size(); ++i) {
      if (!workers_[i].process.running()) continue;
      const nanoseconds starved = waited_for_core(workers_[i].process.pid()) - waited[i];
      patience =
          std::max(patience, told + grace + std::clamp(starved, nanoseconds(0), grace * (kMostGraces - 1)));
    }
    if (Clock::now() >= patience) break;
    wait(patience);
    reap();
  }
  for (int i = 0; i < static_cast<int>(workers_.size()); ++i) {
    Worker& worker = this->worker(i);
    if (!worker.process.running()) continue;
    // A failed worker that does not end keeps its error as the account of its death.
    const Phase phase = board_.row(i).phase();
    if (phase != Phase::kFailed && phase != Phase::kFatal) {
      worker.killed_for = "did not stop within " + in_seconds(static_cast<double>(grace_ms_) / 1000) +
                          " of being told; " + describe_activity(worker.process.pid());
    }
    kill(i);
  }
  while (count_running() > 0) {
    wait(Clock::now() + look_interval_);
    reap();
  }
}

void WorkerSupervisor::set(TimerQueue::Id& timer, TimePoint when) {
  if (!timers_.restart(timer, when)) timer = timers_.schedule(when);
}

void WorkerSupervisor::clear(TimerQueue::Id& timer) { timers_.cancel(std::exchange(timer, 0)); }

int WorkerSupervisor::count_running() const {
  return static_cast<int>(
      std::count_if(workers_.begin(), workers_.end(), [](const Worker& w) { return w.process.running(); }));
}

void WorkerSupervisor::tell(WorkerEvent::Kind kind, int index, pid_t pid, std::string message) {
  const std::lock_guard guard(mutex_);
  events_.push_back({kind, index, pid, std::move(message)});
}

void WorkerSupervisor::give_up(int index, pid_t pid, const std::string& why) {
  {
    const std::lock_guard guard(mutex_);
    if (failure_.empty()) failure_ = why;
  }
  given_up_ = true;
  tell(WorkerEvent::Kind::kGaveUp, index, pid, why);
}

void WorkerSupervisor::request_stop(std::chrono::milliseconds grace) {
  grace_ms_ = grace.count();
  stopping_ = true;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_fd_, &one, sizeof one);
}

std::vector<WorkerEvent> WorkerSupervisor::take_events() {
  const std::lock_guard guard(mutex_);
  return std::exchange(events_, {});
}

std::string WorkerSupervisor::failure() const {
  const std::lock_guard guard(mutex_);
  return failure_;
}

}  // namespace gristmill
