#include "rollout/worker_pool.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <deque>
#include <future>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

#include "rollout/child_process.h"

namespace gristmill {

namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr double kMaxBackoff = 5;  // seconds
constexpr std::chrono::milliseconds kTick{250};
constexpr std::size_t kAccounts = 5;  // of a worker's deaths, kept for failure()

Clock::duration to_clock(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(Seconds(seconds));
}

std::string in_seconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g s", seconds);
  return text;
}

// 93512 -> "93 512".
std::string grouped(std::uint64_t number) {
  std::string text = std::to_string(number);
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > 0; at -= 3) {
    text.insert(static_cast<std::size_t>(at), 1, ' ');
  }
  return text;
}

std::string after_frames(const RunBoard::Row& row) {
  return " after " + grouped(row.get(Counter::kFrames)) + " frames";
}

// The supervisor thread's view of one worker.
struct Worker {
  ChildProcess process;
  int incarnation = 0;
  Phase phase = Phase::kStarting;
  Clock::time_point phase_since;
  bool killed = false;                   // by the supervisor
  std::string killed_for;                // why, in words that follow "because it"
  std::optional<Clock::time_point> due;  // for the next start
  std::deque<Clock::time_point> deaths;  // within the restart window
  std::deque<std::string> accounts;      // how it ended, the last few times
  int failures_before_running = 0;       // in a row
  bool fatal_told = false;
};

}  // namespace

// Everything but the members under `mutex` and the atomics is the supervisor thread's.
struct WorkerPool::Impl {
  Impl(const Config& the_config, Command the_command, RunBoard& the_board)
      : config(the_config.workers), command(std::move(the_command)), board(the_board) {}

  void run(std::promise<void> started);
  void start(int index);
  void start_due();
  void wait(Clock::time_point until);
  void reap();
  void ended(int index, pid_t pid, int status);
  bool as_told(const RunBoard::Row& row, int status) const;
  void judge(int index, pid_t pid, const std::string& how, Phase phase);
  void give_up_if_fatal(int index, pid_t pid);
  std::string failure_of(const RunBoard::Row& row, const std::string& exit) const;
  void check_progress();
  void hung(int index, const std::string& what);
  void shut_down();

  std::string who(int index, pid_t pid) const {
    const std::string name = "worker " + std::to_string(index);
    return pid == 0 ? name : name + " (pid " + std::to_string(pid) + ")";
  }
  void tell(WorkerEvent::Kind kind, int index, pid_t pid, std::string message) {
    const std::lock_guard guard(mutex);
    events.push_back({kind, index, pid, std::move(message)});
  }
  void give_up(int index, pid_t pid, const std::string& why) {
    {
      const std::lock_guard guard(mutex);
      if (failure.empty()) failure = why;
    }
    given_up = true;
    tell(WorkerEvent::Kind::kGaveUp, index, pid, why);
  }
  int count_running() const {
    return static_cast<int>(
        std::count_if(workers.begin(), workers.end(), [](const Worker& w) { return w.process.running(); }));
  }
  void wake() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wake_fd, &one, sizeof one);
  }

  const Config::Workers config;
  Command command;  // [0] is a path
  std::vector<std::string> environment;
  RunBoard& board;
  const pid_t owner = ::getpid();

  std::vector<Worker> workers;
  bool given_up = false;
  // Silence is counted from here at most: the supervisor itself was stopped before.
  Clock::time_point awake_since;
  Clock::time_point last_look;
  std::optional<Clock::time_point> ready_since;  // the board announced queue and box

  std::atomic<TrajectoryQueue*> queue{nullptr};
  std::atomic<int> alive{0};
  std::atomic<std::int64_t> restarts{0};
  std::atomic<bool> stopping{false};
  std::atomic<std::int64_t> grace_ms{0};
  int wake_fd = -1;

  mutable std::mutex mutex;
  std::vector<WorkerEvent> events;
  std::string failure;

  std::mutex join_mutex;
  std::thread supervisor;
};

// The life of the supervisor thread. Workers are its children in the kernel's eyes: they are killed
// when it ends, so it outlives them all.
void WorkerPool::Impl::run(std::promise<void> started) {
  last_look = awake_since = Clock::now();
  try {
    for (int i = 0; i < static_cast<int>(workers.size()); ++i) start(i);
    started.set_value();
  } catch (...) {
    workers.clear();  // kills and reaps those that did start
    alive = 0;
    started.set_exception(std::current_exception());
    return;
  }
  while (!stopping) {
    Clock::time_point until =
        Clock::now() + std::min<Clock::duration>(
                           kTick, to_clock(std::min(config.hang_timeout_s, config.start_timeout_s) / 4));
    for (const Worker& worker : workers) {
      if (worker.due) until = std::min(until, *worker.due);
    }
    wait(until);
    reap();
    check_progress();
    start_due();
  }
  shut_down();
}

void WorkerPool::Impl::start(int index) {
  Worker& worker = workers[static_cast<std::size_t>(index)];
  std::vector<std::string> arguments = command;
  arguments.insert(arguments.end(), {"--board", board.name(), "--index", std::to_string(index)});
  board.row(index).prepare(worker.incarnation);
  worker.phase = Phase::kStarting;
  worker.phase_since = Clock::now();
  worker.killed = false;
  worker.killed_for.clear();
  worker.due.reset();
  worker.process = ChildProcess::start(arguments, environment);
  alive = count_running();
  const pid_t pid = worker.process.pid();
  if (worker.incarnation == 0) {
    tell(WorkerEvent::Kind::kStarted, index, pid, who(index, pid) + " started");
  } else {
    ++restarts;
    tell(WorkerEvent::Kind::kRestarted, index, pid,
         who(index, pid) + " restarted (restart " + std::to_string(worker.incarnation) + ")");
  }
}

void WorkerPool::Impl::start_due() {
  for (int i = 0; i < static_cast<int>(workers.size()); ++i) {
    Worker& worker = workers[static_cast<std::size_t>(i)];
    if (!worker.due || *worker.due > Clock::now()) continue;
    if (given_up || stopping || board.stop_requested()) {
      worker.due.reset();
      continue;
    }
    try {
      start(i);
    } catch (const std::runtime_error& error) {
      judge(i, 0, error.what(), Phase::kStarting);
    }
  }
}

// Until a worker ends, wake(), or `until`.
void WorkerPool::Impl::wait(Clock::time_point until) {
  std::vector<pollfd> fds{{wake_fd, POLLIN, 0}};
  for (const Worker& worker : workers) {
    if (!worker.process.running()) continue;
    if (worker.process.pidfd() < 0) until = std::min(until, Clock::now() + std::chrono::milliseconds(20));
    fds.push_back({worker.process.pidfd(), POLLIN, 0});  // a negative one is skipped
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
  if (::poll(fds.data(), fds.size(), static_cast<int>(std::max<std::int64_t>(left, 0))) <= 0) return;
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t drained = ::read(wake_fd, &count, sizeof count);
}

void WorkerPool::Impl::reap() {
  for (int i = 0; i < static_cast<int>(workers.size()); ++i) {
    Worker& worker = workers[static_cast<std::size_t>(i)];
    const pid_t pid = worker.process.pid();
    const std::optional<int> status = worker.process.try_reap();
    if (!status) continue;
    alive = count_running();
    if (TrajectoryQueue* const watched = queue) watched->recover();
    ended(i, pid, *status);
  }
}

bool WorkerPool::Impl::as_told(const RunBoard::Row& row, int status) const {
  if (status != 0 && status != ChildProcess::kUnknownStatus) return false;
  if (stopping || board.stop_requested()) return true;
  const TrajectoryQueue* const watched = queue;
  return row.phase() == Phase::kStopped && watched != nullptr && watched->closed();
}

void WorkerPool::Impl::ended(int index, pid_t pid, int status) {
  Worker& worker = workers[static_cast<std::size_t>(index)];
  const RunBoard::Row row = board.row(index);
  if (as_told(row, status)) return;

  const Phase phase = row.phase();
  const std::string after = after_frames(row);
  std::string how = describe_exit(status);
  if (!worker.killed_for.empty()) {
    how = "was ended" + after + " because it " + worker.killed_for;
  } else if (phase == Phase::kFailed || phase == Phase::kFatal) {
    how = failure_of(row, how);
  } else {
    how += after;
    if (status == 0) how += " although nobody had told it to stop";
  }
  if (row.reached(Phase::kRunning)) {
    worker.failures_before_running = 0;
  } else if (phase == Phase::kFailed) {
    ++worker.failures_before_running;
  }
  judge(index, pid, how, phase);
}

// What a worker said of its failure; of one that said nothing, how it ended.
std::string WorkerPool::Impl::failure_of(const RunBoard::Row& row, const std::string& exit) const {
  const std::string error = row.error();
  return "failed" + after_frames(row) + ": " + (error.empty() ? "it left no error text, and " + exit : error);
}

// As soon as a worker says it: its process may take a while to end, and what it met must not be lost
// when the run ends meanwhile.
void WorkerPool::Impl::give_up_if_fatal(int index, pid_t pid) {
  const RunBoard::Row row = board.row(index);
  if (given_up || row.phase() != Phase::kFatal) return;
  workers[static_cast<std::size_t>(index)].fatal_told = true;
  give_up(index, pid,
          who(index, pid) + " " + failure_of(row, "is ending") + "\nA restart would only repeat it.");
}

// What becomes of a worker that ended: restarted later, or the end of the run.
void WorkerPool::Impl::judge(int index, pid_t pid, const std::string& how, Phase phase) {
  Worker& worker = workers[static_cast<std::size_t>(index)];
  const RunBoard::Row row = board.row(index);
  const bool failed = phase == Phase::kFailed || phase == Phase::kFatal;
  const auto kind = failed ? WorkerEvent::Kind::kFailed : WorkerEvent::Kind::kDied;
  const std::string account = who(index, pid) + " " + how;
  const Clock::time_point now = Clock::now();
  const Clock::time_point window = now - to_clock(config.restart_window_s);
  while (!worker.deaths.empty() && worker.deaths.front() < window) worker.deaths.pop_front();
  worker.deaths.push_back(now);
  worker.accounts.push_back(account);
  if (worker.accounts.size() > kAccounts) worker.accounts.pop_front();

  give_up_if_fatal(index, pid);
  if (given_up || stopping || board.stop_requested()) {
    if (!worker.fatal_told) tell(kind, index, pid, account);
    return;
  }
  const bool first_start = worker.incarnation == 0 && !row.reached(Phase::kDescribed);
  if (phase == Phase::kFailed && !row.reached(Phase::kRunning) &&
      (first_start || worker.failures_before_running >= 2)) {
    tell(kind, index, pid, account);
    give_up(index, pid,
            account + "\nIt never got as far as stepping its environments" +
                (first_start ? "" : ", twice in a row") +
                ": a restart would only repeat it. Mend what the error names (env.id, env.kwargs, the "
                "environment's own code), then start again.");
  } else if (static_cast<std::int64_t>(worker.deaths.size()) > config.max_restarts) {
    tell(kind, index, pid, account);
    std::string why = "worker " + std::to_string(index) + " ended " + std::to_string(worker.deaths.size()) +
                      " times within " + in_seconds(config.restart_window_s) +
                      ", and workers.max_restarts is " + std::to_string(config.max_restarts) + ". The last " +
                      std::to_string(worker.accounts.size()) + ":\n";
    for (const std::string& line : worker.accounts) why += "  " + line + "\n";
    why +=
        "Mend the cause (SIGKILL out of nowhere is often the kernel short of memory: see dmesg), or raise "
        "workers.max_restarts.";
    give_up(index, pid, why);
  } else {
    // worker.deaths counts this one: 1, 2, 4, … times the first delay.
    const double doublings = static_cast<double>(std::min<std::size_t>(worker.deaths.size() - 1, 30));
    const double delay = std::min(kMaxBackoff, config.restart_backoff_s * std::exp2(doublings));
    worker.due = now + to_clock(delay);
    ++worker.incarnation;
    tell(kind, index, pid, account + "; restarting in " + in_seconds(delay));
  }
}

// Notices who makes no progress. A hang cannot be told from slowness: the time-outs are the user's.
void WorkerPool::Impl::check_progress() {
  const Clock::time_point now = Clock::now();
  // Stopped with its workers (Ctrl-Z) or starved: their silence says nothing, so give them the time again.
  if (now - last_look > 4 * kTick) awake_since = now;
  last_look = now;
  if (!ready_since && board.await_ready(Deadline::now())) ready_since = now;

  for (int i = 0; i < static_cast<int>(workers.size()); ++i) {
    Worker& worker = workers[static_cast<std::size_t>(i)];
    if (!worker.process.running() || worker.killed) continue;
    const RunBoard::Row row = board.row(i);
    const Phase phase = row.phase();
    give_up_if_fatal(i, worker.process.pid());
    if (phase != worker.phase) {
      worker.phase = phase;
      worker.phase_since = now;
    }
    const auto since = [&](Clock::time_point then) {
      return Seconds(now - std::max(then, awake_since)).count();
    };
    const double in_phase = since(worker.phase_since);
    switch (phase) {
      case Phase::kEmpty:
      case Phase::kStarting:
        if (in_phase > config.start_timeout_s) {
          hung(i, "had not made its environments " + in_seconds(in_phase) +
                      " after its start (workers.start_timeout_s is " + in_seconds(config.start_timeout_s) +
                      ")");
        }
        break;
      case Phase::kDescribed:
        // Until the learner is ready, waiting for it is what a worker should do.
        if (ready_since && std::min(in_phase, since(*ready_since)) > config.start_timeout_s) {
          hung(i, "had not begun to step " + in_seconds(std::min(in_phase, since(*ready_since))) +
                      " after the learner was ready (workers.start_timeout_s is " +
                      in_seconds(config.start_timeout_s) + ")");
        }
        break;
      case Phase::kRunning: {
        const double silent = std::min(Seconds(row.since_beat()).count(), since(Clock::time_point::min()));
        if (silent > config.hang_timeout_s) {
          hung(i, "gave no sign of life for " + in_seconds(silent) + " (workers.hang_timeout_s is " +
                      in_seconds(config.hang_timeout_s) + ")");
        }
        break;
      }
      case Phase::kStopped:
      case Phase::kFailed:
      case Phase::kFatal:
        if (in_phase > config.hang_timeout_s) {
          hung(i, "said its end but was still there " + in_seconds(in_phase) + " later");
        }
        break;
    }
  }
}

void WorkerPool::Impl::hung(int index, const std::string& what) {
  Worker& worker = workers[static_cast<std::size_t>(index)];
  const pid_t pid = worker.process.pid();
  const std::string found = what + "; " + describe_activity(pid);
  tell(WorkerEvent::Kind::kHung, index, pid, who(index, pid) + " " + found + "; killing it");
  // A failed worker that does not end keeps its error as the account of its death.
  if (worker.phase != Phase::kFailed && worker.phase != Phase::kFatal) worker.killed_for = found;
  worker.killed = true;
  worker.process.kill();
}

void WorkerPool::Impl::shut_down() {
  board.request_stop();
  const Clock::time_point patience = Clock::now() + std::chrono::milliseconds(grace_ms);
  while (count_running() > 0 && Clock::now() < patience) {
    wait(patience);
    reap();
  }
  for (int i = 0; i < static_cast<int>(workers.size()); ++i) {
    Worker& worker = workers[static_cast<std::size_t>(i)];
    if (!worker.process.running()) continue;
    // A failed worker that does not end keeps its error as the account of its death.
    const Phase phase = board.row(i).phase();
    worker.killed = true;
    if (phase != Phase::kFailed && phase != Phase::kFatal) {
      worker.killed_for = "did not stop within " + in_seconds(static_cast<double>(grace_ms) / 1000) +
                          " of being told; " + describe_activity(worker.process.pid());
    }
    worker.process.kill();
  }
  while (count_running() > 0) {
    wait(Clock::now() + kTick);
    reap();
  }
}

WorkerPool::WorkerPool(const Config& config, Command command, RunBoard& board) {
  const int count = static_cast<int>(config.workers.count);
  if (command.empty()) throw std::runtime_error("worker pool: the command to start a worker is empty");
  if (count > board.rows()) {
    throw std::runtime_error("worker pool: " + std::to_string(count) + " workers, but the run board '" +
                             board.name() + "' has only " + std::to_string(board.rows()) + " rows");
  }
  command[0] = find_program(command[0]);
  impl_ = std::make_unique<Impl>(config, std::move(command), board);
  impl_->environment = worker_environment();
  impl_->workers.resize(static_cast<std::size_t>(count));
  impl_->wake_fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (impl_->wake_fd < 0) throw std::runtime_error("worker pool: no eventfd: too many open files?");

  std::promise<void> promise;
  std::future<void> started = promise.get_future();
  // Signals are for the main thread.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  impl_->supervisor = std::thread([impl = impl_.get()](std::promise<void> p) { impl->run(std::move(p)); },
                                  std::move(promise));
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  try {
    started.get();
  } catch (...) {
    impl_->supervisor.join();
    ::close(impl_->wake_fd);
    throw;
  }
}

WorkerPool::~WorkerPool() {
  if (::getpid() != impl_->owner) {
    // A forked child has neither the thread nor the workers.
    [[maybe_unused]] Impl* const leaked = impl_.release();
    return;
  }
  stop(std::chrono::seconds(2));
  ::close(impl_->wake_fd);
}

void WorkerPool::watch_queue(TrajectoryQueue* queue) { impl_->queue = queue; }

std::vector<WorkerEvent> WorkerPool::take_events() {
  const std::lock_guard guard(impl_->mutex);
  return std::exchange(impl_->events, {});
}

int WorkerPool::alive() const { return impl_->alive; }
std::int64_t WorkerPool::restarts() const { return impl_->restarts; }

std::string WorkerPool::failure() const {
  const std::lock_guard guard(impl_->mutex);
  return impl_->failure;
}

void WorkerPool::stop(std::chrono::milliseconds grace) {
  const std::lock_guard guard(impl_->join_mutex);
  if (!impl_->supervisor.joinable()) return;
  impl_->grace_ms = grace.count();
  impl_->stopping = true;
  impl_->wake();
  impl_->supervisor.join();
}

}  // namespace gristmill
