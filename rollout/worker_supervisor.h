#pragma once

// The thread behind WorkerPool (worker_pool.h): starts the workers, watches them, restarts what dies or
// hangs, stops them. All that waits for a time is a timer of one TimerQueue.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/run_board.h"
#include "core/timer_queue.h"
#include "core/trajectory_queue.h"
#include "rollout/child_process.h"
#include "rollout/config.h"
#include "rollout/restart_policy.h"
#include "rollout/stack_report.h"
#include "rollout/worker_pool.h"
#include "rollout/worker_silence.h"

namespace gristmill {

// run() and the private part belong to the supervisor thread; the rest is for any thread.
class WorkerSupervisor {
 public:
  // Throws std::runtime_error: no such program, or no descriptor left.
  WorkerSupervisor(const Config::Workers& config, WorkerPool::Command command, RunBoard& board);
  ~WorkerSupervisor();
  WorkerSupervisor(const WorkerSupervisor&) = delete;
  WorkerSupervisor& operator=(const WorkerSupervisor&) = delete;

  // The life of the thread, until request_stop(). Sets `started` when all workers are, or to the exception
  // that kept one from it; then none is left, and it returns. Workers are this thread's children in the
  // kernel's eyes: they are killed when it ends, so it outlives them all.
  void run(std::promise<void> started);

  void request_stop(std::chrono::milliseconds grace);
  void watch_queue(TrajectoryQueue* queue) { queue_ = queue; }
  std::vector<WorkerEvent> take_events();
  std::string failure() const;
  int alive() const { return alive_; }
  std::int64_t restarts() const { return restarts_; }

 private:
  using Clock = TimerQueue::Clock;
  using TimePoint = TimerQueue::TimePoint;

  struct Worker {
    explicit Worker(const Config::Workers& config, int index) : policy(config, index) {}

    ChildProcess process;
    RestartPolicy policy;
    Progress progress;
    TimePoint silent_since;               // as patience_with() has it
    std::optional<StackRequest> request;  // its stack was asked for; `stack` is the time to look for it
    TimePoint asked;
    std::optional<StackRequest::Stack> stack_seen;  // at the last look
    bool warned = false;                            // of this silence
    bool killed = false;                            // by the supervisor
    std::string killed_for;                         // why, in words that follow "because it"
    bool fatal_told = false;
    // Timers, 0 when there is none.
    TimerQueue::Id restart = 0;  // start it again
    TimerQueue::Id alarm = 0;    // half of its time, or all, has gone without progress
    TimerQueue::Id stack = 0;
  };

  void start(int index);
  void wait(TimePoint until);
  void reap();
  void ended(int index, pid_t pid, int status);
  void judge(int index, pid_t pid, WorkerEnd end);
  void give_up_if_fatal(int index, pid_t pid);
  bool as_told(const RunBoard::Row& row, int status) const;

  void ring(TimerQueue::Id timer);
  void start_again(int index);
  void kill(int index);
  void shut_down();

  // worker_watch.cc
  Clock::duration look_interval() const;
  void look();
  void look_at(int index, TimePoint now);
  void ask_for_stack(int index);
  void told_stack(int index);

  void set(TimerQueue::Id& timer, TimePoint when);
  void clear(TimerQueue::Id& timer);
  int count_running() const;
  void tell(WorkerEvent::Kind kind, int index, pid_t pid, std::string message);
  void give_up(int index, pid_t pid, const std::string& why);
  Worker& worker(int index) { return workers_[static_cast<std::size_t>(index)]; }

  const Config::Workers config_;
  const WorkerPool::Command command_;  // [0] is a path
  const std::vector<std::string> environment_;
  RunBoard& board_;
  const Clock::duration look_interval_;

  std::vector<Worker> workers_;
  TimerQueue timers_;
  TimerQueue::Id look_timer_ = 0;
  bool given_up_ = false;
  // Silence is counted from here at most: the supervisor itself was stopped before.
  TimePoint awake_since_;
  TimePoint last_look_;
  std::optional<TimePoint> ready_since_;  // the board announced queue and box

  std::atomic<TrajectoryQueue*> queue_{nullptr};
  std::atomic<int> alive_{0};
  std::atomic<std::int64_t> restarts_{0};
  std::atomic<bool> stopping_{false};
  std::atomic<std::int64_t> grace_ms_{0};
  int wake_fd_ = -1;

  mutable std::mutex mutex_;  // over the two below
  std::vector<WorkerEvent> events_;
  std::string failure_;
};

}  // namespace gristmill
