#include "learner/run_timers.h"

#include <chrono>

namespace gristmill {

namespace {

TimerQueue::TimePoint::duration to_clock(double seconds) {
  return std::chrono::duration_cast<TimerQueue::TimePoint::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

RunTimers::RunTimers(double stall_s, TimePoint now)
    : stall_(to_clock(stall_s)),
      patience_(stall_),
      last_push_(now),
      stall_timer_(timers_.schedule(now + stall_)) {}

void RunTimers::start(double log_s, double checkpoint_s, TimePoint now) {
  log_ = to_clock(log_s);
  log_timer_ = timers_.schedule(now + log_);
  if (checkpoint_s <= 0) return;
  checkpoint_ = to_clock(checkpoint_s);
  checkpoint_timer_ = timers_.schedule(now + checkpoint_);
}

void RunTimers::pushed(TimePoint when) {
  if (when <= last_push_) return;
  last_push_ = when;
  patience_ = stall_;
  // It was scheduled again whenever it was due: its id is good.
  [[maybe_unused]] const bool restarted = timers_.restart(stall_timer_, when + stall_);
}

RunTimers::Due RunTimers::take(TimePoint now) {
  Due due;
  for (const TimerQueue::Id timer : timers_.expire(now)) {
    if (timer == log_timer_) {
      due.log = true;
      log_timer_ = timers_.schedule(now + log_);
    } else if (timer == checkpoint_timer_) {
      due.checkpoint = true;
      checkpoint_timer_ = timers_.schedule(now + checkpoint_);
    } else if (timer == stall_timer_) {
      due.stalled = true;
      patience_ *= 2;
      stall_timer_ = timers_.schedule(last_push_ + patience_);
    }
  }
  return due;
}

double RunTimers::silent_s(TimePoint now) const {
  return std::chrono::duration<double>(now - last_push_).count();
}

}  // namespace gristmill
