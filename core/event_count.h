#pragma once

// Waiting: an eventcount on one futex word in shared memory.
//
//   waiter                                   notifier
//     key = prepare()      (sets bit 0)        change the condition
//     re-check condition                       notify_all()
//     wait(key, deadline)
//
// Either the notifier sees bit 0, or the waiter's re-check sees the changed condition: both sides
// have a seq_cst fence between their store and their load (Dekker). notify_all() makes a system
// call only when bit 0 is set, and clears it: a waiter killed in its sleep costs one wasted wake,
// and nothing else. A notifier killed between its change and its wake is covered by kSlice: no
// sleep is longer, so callers loop on their condition.

#include <atomic>
#include <chrono>
#include <cstdint>

#include "core/deadline.h"

namespace gristmill {

class EventCount {
 public:
  // The longest single sleep.
  static constexpr std::chrono::milliseconds kSlice{50};

  // Any process or thread. Must be followed by a re-check of the condition.
  std::uint32_t prepare();
  // Sleeps until notified after prepare(), kSlice, the deadline, or a signal; returns early without
  // a reason too. The caller loops.
  void wait(std::uint32_t key, Deadline deadline);
  // Wakes every sleeper. No system call when nobody sleeps.
  void notify_all();

  // Calls `ready` until it returns true or the deadline has passed; spins briefly first when there
  // are cores to spare. Returns ready's last answer.
  template <class Ready>
  bool await(Deadline deadline, Ready&& ready);

 private:
  static int spin_budget();  // iterations; 0 when cores are scarce

  std::atomic<std::uint32_t> word_{0};  // bit 0: somebody may sleep; the rest counts notifications
};

template <class Ready>
bool EventCount::await(Deadline deadline, Ready&& ready) {
  for (int i = spin_budget(); i > 0; --i) {
    if (ready()) return true;
    __builtin_ia32_pause();
  }
  while (true) {
    if (ready()) return true;
    const std::uint32_t key = prepare();
    if (ready()) return true;
    if (deadline.passed()) return false;
    wait(key, deadline);
  }
}

}  // namespace gristmill
