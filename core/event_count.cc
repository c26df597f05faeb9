#include "core/event_count.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <thread>

#include "core/fence.h"

namespace gristmill {
namespace {

static_assert(sizeof(std::atomic<std::uint32_t>) == 4 && std::atomic<std::uint32_t>::is_always_lock_free,
              "the kernel reads the word too");

// Not FUTEX_PRIVATE: sleepers and notifiers are different processes.
long futex(std::atomic<std::uint32_t>* word, int operation, std::uint32_t value, const timespec* timeout) {
  return ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(word), operation, value, timeout, nullptr, 0);
}

}  // namespace

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::thread::hardware_concurrency());
}

std::uint32_t EventCount::prepare() {
  const std::uint32_t key = word_.fetch_or(1, std::memory_order_seq_cst) | 1;
  // SYNC POINT: between the store of bit 0 and the caller's re-check; pairs with notify_all's.
  full_fence();
  return key;
}

EventCount::Woken EventCount::wait(std::uint32_t key, Deadline deadline) {
  const auto left = std::min<Deadline::Clock::duration>(deadline.left(), kSlice);
  if (left <= left.zero()) return Woken::kTimedOut;
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
  const timespec timeout{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
  if (futex(&word_, FUTEX_WAIT, key, &timeout) == 0) {
    run(1);
    return Woken::kNotified;
  }
  if (errno == ETIMEDOUT) return Woken::kTimedOut;
  return errno == EINTR ? Woken::kInterrupted : Woken::kChanged;
}

// Counts down, never below zero: not every wake was counted.
void EventCount::run(std::int32_t woken) {
  std::int32_t before = woken_.load(std::memory_order_relaxed);
  while (before > 0) {
    const std::int32_t after = std::max(before - woken, 0);
    // SYNC POINT: before the caller's look at its condition; pairs with notify's fence, so that a
    // notifier who still counts on this waiter has its change seen.
    if (woken_.compare_exchange_weak(before, after, std::memory_order_seq_cst)) break;
  }
  full_fence();
}

void EventCount::notify(std::int64_t n) {
  // SYNC POINT: between the caller's change and the loads below; pairs with prepare's and run's.
  full_fence();
  std::uint32_t word = word_.load(std::memory_order_relaxed);
  if ((word & 1) == 0) return;
  const std::int32_t running = std::max(woken_.load(std::memory_order_relaxed), 0);
  if (running >= n) return;
  const auto more = static_cast<std::int32_t>(std::min<std::int64_t>(n - running, INT_MAX / 2));
  // word + 2 counts and keeps bit 0: whoever holds the old key does not fall asleep any more.
  while (!word_.compare_exchange_weak(word, word + 2, std::memory_order_seq_cst)) {
    if ((word & 1) == 0) return;  // another notifier has just woken all there were
  }
  // Before the wake, so that the woken find it to count down.
  woken_.fetch_add(more, std::memory_order_relaxed);
  const long found = futex(&word_, FUTEX_WAKE, static_cast<std::uint32_t>(more), nullptr);
  if (found >= more) return;
  run(more - static_cast<std::int32_t>(std::max(found, 0L)));
  // Nobody else was asleep: later notifiers need no call. Whoever has prepared since and sleeps by now
  // must not be left behind, though.
  std::uint32_t expected = word + 2;
  if (word_.compare_exchange_strong(expected, word + 3, std::memory_order_seq_cst)) {
    futex(&word_, FUTEX_WAKE, INT_MAX, nullptr);
  }
}

void EventCount::notify_all() {
  // SYNC POINT: between the caller's change and the load of bit 0; pairs with prepare's.
  full_fence();
  std::uint32_t word = word_.load(std::memory_order_relaxed);
  while ((word & 1) != 0) {
    // word + 1 clears bit 0 and counts, in one carry: whoever holds the old key does not fall asleep any
    // more.
    if (word_.compare_exchange_weak(word, word + 1, std::memory_order_seq_cst)) {
      futex(&word_, FUTEX_WAKE, INT_MAX, nullptr);
      return;
    }
  }
}

int EventCount::spin_budget() {
  // With one or two cores, whoever is waited for needs the core that a spinner would burn.
  static const int budget = usable_cores() <= 2 ? 0 : 200;
  return budget;
}

}  // namespace gristmill
