#pragma once

#include <chrono>

namespace gristmill {

// A moment on the monotonic clock until which a call may block.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  static Deadline never() { return Deadline(Clock::time_point::max()); }
  // Has always passed, without a look at the clock (which may cost more than the call it bounds).
  static Deadline now() { return Deadline(Clock::time_point::min()); }
  // `timeout` from now, saturating at never(). Negative counts as zero.
  template <class Rep, class Period>
  static Deadline in(std::chrono::duration<Rep, Period> timeout) {
    if (timeout <= timeout.zero()) return now();
    const auto start = Clock::now();
    const std::chrono::duration<double> room = Clock::time_point::max() - start;
    if (std::chrono::duration<double>(timeout) >= room) return never();
    return Deadline(start + std::chrono::duration_cast<Clock::duration>(timeout));
  }

  bool is_never() const { return at_ == Clock::time_point::max(); }
  bool is_now() const { return at_ == Clock::time_point::min(); }
  bool passed() const { return is_now() || (!is_never() && Clock::now() >= at_); }
  // Time left, zero when passed, Clock::duration::max() for never().
  Clock::duration left() const {
    if (is_never()) return Clock::duration::max();
    if (is_now()) return Clock::duration::zero();
    const auto now = Clock::now();
    return now >= at_ ? Clock::duration::zero() : at_ - now;
  }
  Clock::time_point at() const { return at_; }

 private:
  explicit Deadline(Clock::time_point at) : at_(at) {}
  Clock::time_point at_;
};

}  // namespace gristmill
