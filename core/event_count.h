#pragma once

// Waiting: an eventcount on one futex word in shared memory.
//
//   waiter                                   notifier
//     key = prepare()      (sets bit 0)        change the condition
//     re-check condition                       notify_all(), or notify(n)
//     wait(key, deadline)
//
// Either the notifier sees bit 0, or the waiter's re-check sees the changed condition: both sides
// have a seq_cst fence between their store and their load (Dekker). A notifier makes a system call
// only when bit 0 is set; notify_all() clears it, notify(n) when it found fewer than n asleep: a
// waiter killed in its sleep costs one wasted wake, and nothing else. A notifier killed between its
// change and its wake is covered by kSlice: no sleep is longer, so callers loop on their condition.
//
// notify(n) wakes no more than are needed: while earlier ones, woken, have not run yet, they count
// towards n. Hence whoever was woken and leaves work behind must notify(1) in its turn. One that is
// killed after it was woken delays the others by a slice at most, and await() then forgets it.

#include <atomic>
#include <chrono>
#include <cstdint>

#include "core/deadline.h"

namespace gristmill {

// That this thread may run on, by its affinity.
int usable_cores();

class EventCount {
 public:
  // The longest single sleep.
  static constexpr std::chrono::milliseconds kSlice{25};

  enum class Woken {
    kNotified,     // by a notifier
    kChanged,      // did not sleep: a notifier was quicker
    kTimedOut,     // a slice, or the deadline
    kInterrupted,  // a signal handler ran
  };

  // Any process or thread. Must be followed by a re-check of the condition.
  std::uint32_t prepare();
  // Sleeps until notified after prepare(), kSlice, the deadline, or a signal; returns early without
  // a reason too. The caller loops.
  Woken wait(std::uint32_t key, Deadline deadline);
  // Wakes every sleeper. No system call when nobody sleeps.
  void notify_all();
  // Wakes up to n sleepers, those included that were woken and have not run yet.
  void notify(std::int64_t n);
  // A hint without a fence: whether somebody may sleep.
  bool may_sleep() const { return (word_.load(std::memory_order_relaxed) & 1) != 0; }
  // By a waiter that slept a whole slice although its condition holds: those who were woken are gone.
  void forget_woken() { woken_.store(0, std::memory_order_relaxed); }

  // Calls `ready` until it returns true or the deadline has passed; spins briefly first when there
  // are cores to spare. Returns ready's last answer.
  template <class Ready>
  bool await(Deadline deadline, Ready&& ready);

 private:
  static int spin_budget();  // iterations; 0 when cores are scarce
  void run(std::int32_t woken);

  std::atomic<std::uint32_t> word_{0};  // bit 0: somebody may sleep; the rest counts notifications
  std::atomic<std::int32_t> woken_{0};  // by notify(n), and not running yet; a hint
};

template <class Ready>
bool EventCount::await(Deadline deadline, Ready&& ready) {
  for (int i = spin_budget(); i > 0; --i) {
    if (ready()) return true;
    __builtin_ia32_pause();
  }
  Woken woken = Woken::kChanged;
  while (true) {
    const bool slept_in_vain = woken == Woken::kTimedOut;
    if (ready()) {
      if (slept_in_vain) forget_woken();
      return true;
    }
    const std::uint32_t key = prepare();
    if (ready()) return true;
    if (deadline.passed()) return false;
    woken = wait(key, deadline);
  }
}

}  // namespace gristmill
