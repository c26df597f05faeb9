#pragma once

// Time in which nobody can be expected to make progress: somebody is stopped, or nobody is there on the
// other side. What a process waited then is no stall.

#include <atomic>
#include <chrono>
#include <cstdint>

namespace gristmill::campaign {

// Nanoseconds of the monotonic clock, which all processes share.
inline std::uint64_t nanoseconds_now() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

// In shared memory. Written by the tormentor only; read by anyone.
class ExcusedClock {
 public:
  void set(bool excused, std::uint64_t now) {
    if (excused == (since_.load() != 0)) return;
    sequence_.fetch_add(1);
    if (excused) {
      since_.store(now);
    } else {
      const std::uint64_t since = since_.load();
      total_.store(total_.load() + (now > since ? now - since : 0));
      since_.store(0);
    }
    sequence_.fetch_add(1);
  }
  // Excused nanoseconds up to `now`. Sequentially consistent throughout: a seqlock of words.
  std::uint64_t at(std::uint64_t now) const {
    while (true) {
      const std::uint64_t before = sequence_.load();
      const std::uint64_t total = total_.load();
      const std::uint64_t since = since_.load();
      if (before % 2 != 0 || before != sequence_.load()) continue;
      return total + (since != 0 && now > since ? now - since : 0);
    }
  }

 private:
  std::atomic<std::uint64_t> sequence_{0};
  std::atomic<std::uint64_t> total_{0};
  std::atomic<std::uint64_t> since_{0};  // 0: not excused now
};

}  // namespace gristmill::campaign
