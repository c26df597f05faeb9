#pragma once

// A process-shared robust mutex in shared memory. Held for nanoseconds: never over a large copy, a
// callback, or a wait.

#include <pthread.h>

#include <atomic>
#include <cstdint>

#include "core/deadline.h"

namespace gristmill {

class RobustLock {
 public:
  enum class Outcome {
    kLocked,
    // Locked, and the former owner died inside: the caller must repair what the lock protects
    // before anything else. The mutex is already marked consistent and the death counted.
    kOwnerDied,
    // The holder is stopped, or the machine very slow. Nothing is taken from the living.
    kTimedOut,
    // Not a mutex any more: its bytes were damaged.
    kBroken,
  };

  // The creator calls it once, before the segment is READY.
  void init();
  [[nodiscard]] Outcome lock(Deadline deadline);
  void unlock();
  std::uint64_t owner_deaths() const { return owner_deaths_.load(std::memory_order_relaxed); }

 private:
  pthread_mutex_t mutex_;
  std::atomic<std::uint64_t> owner_deaths_{0};  // written by the holder only
};

// Unlocks at the end of the scope if `outcome()` is kLocked or kOwnerDied.
class RobustGuard {
 public:
  RobustGuard(RobustLock& lock, Deadline deadline) : lock_(lock), outcome_(lock.lock(deadline)) {}
  ~RobustGuard() {
    if (held()) lock_.unlock();
  }
  RobustGuard(const RobustGuard&) = delete;
  RobustGuard& operator=(const RobustGuard&) = delete;

  RobustLock::Outcome outcome() const { return outcome_; }
  bool held() const {
    return outcome_ == RobustLock::Outcome::kLocked || outcome_ == RobustLock::Outcome::kOwnerDied;
  }

 private:
  RobustLock& lock_;
  RobustLock::Outcome outcome_;
};

}  // namespace gristmill
