#pragma once

// A lock in shared memory that survives its holder's death: one word that names the holder. Held for
// nanoseconds: never over a large copy, a callback, or a wait.
//
// Uncontended it costs one compare-exchange and one store: a fifth of a robust pthread mutex. Who
// waits for it spins, then sleeps in growing slices, and looks at each of them whether the holder is
// proved dead; then it takes the lock over. Several threads of a process exclude each other like
// processes do. A process that calls exec while one of its threads holds the lock keeps it: do not.

#include <atomic>
#include <cstdint>

#include "core/deadline.h"
#include "core/event_count.h"
#include "core/process_identity.h"

namespace gristmill {

class RobustLock {
 public:
  enum class Outcome {
    kLocked,
    // Locked, and the former owner died inside: the caller must repair what the lock protects
    // before anything else. Should it die in its repair, the next holder is told again. The death is
    // already counted.
    kOwnerDied,
    // The holder is stopped, or the machine very slow. Nothing is taken from the living.
    kTimedOut,
    // Not a lock any more: its bytes were damaged.
    kBroken,
  };

  // The creator calls it once, before the segment is READY.
  void init();
  [[nodiscard]] Outcome lock(Deadline deadline) {
    std::uint64_t nobody = 0;
    // SYNC POINT: pairs with unlock's release.
    if (owner_.compare_exchange_strong(nobody, ProcessIdentity::self_packed(), std::memory_order_acquire))
        [[likely]] {
      return Outcome::kLocked;
    }
    return lock_slowly(deadline);
  }
  void unlock() {
    owner_.store(0, std::memory_order_release);
    // Without a fence: it would cost more than the lock. A waiter who falls asleep in the very
    // nanoseconds in which neither sees the other's store wakes up after kFirstSlice.
    if (released_.may_sleep()) [[unlikely]]
      released_.notify(1);
  }
  std::uint64_t owner_deaths() const { return owner_deaths_.load(std::memory_order_relaxed); }

 private:
  Outcome lock_slowly(Deadline deadline);

  // ProcessIdentity::pack() of the holder, 0: free. Taken by compare-exchange from 0, or from a holder
  // proved dead (who never comes back, so that this succeeds once); freed by the holder.
  std::atomic<std::uint64_t> owner_{0};
  EventCount released_;
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
