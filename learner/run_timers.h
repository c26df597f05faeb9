#pragma once

// What the learner's main loop does now and then: metrics, checkpoints, and saying that no worker pushes.
// One thread; it reads no clock.

#include "core/timer_queue.h"

namespace gristmill {

class RunTimers {
 public:
  using TimePoint = TimerQueue::TimePoint;

  // Silence counts from `now`. stall_s: how long it lasts until it is told of; after that each time it has
  // doubled.
  RunTimers(double stall_s, TimePoint now);

  // Metrics and checkpoints from now on, so many seconds apart; checkpoint_s 0: none.
  void start(double log_s, double checkpoint_s, TimePoint now);

  // A worker pushed something then. Earlier than the last one is ignored.
  void pushed(TimePoint when);

  struct Due {
    bool log = false;
    bool checkpoint = false;
    bool stalled = false;
  };
  // What is due, and starts its next interval at `now`: one that was missed is not made up for.
  Due take(TimePoint now);

  // Seconds since the last push.
  double silent_s(TimePoint now) const;
  // Until then nothing is due.
  TimePoint next() { return timers_.next_deadline().value_or(TimerQueue::kNever); }

 private:
  TimerQueue timers_;
  const TimePoint::duration stall_;
  TimePoint::duration patience_;  // with this silence
  TimePoint::duration log_{};
  TimePoint::duration checkpoint_{};
  TimePoint last_push_;
  TimerQueue::Id stall_timer_ = 0;
  TimerQueue::Id log_timer_ = 0;
  TimerQueue::Id checkpoint_timer_ = 0;
};

}  // namespace gristmill
