#include "core/event_count.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
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

int cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

std::uint32_t EventCount::prepare() {
  const std::uint32_t key = word_.fetch_or(1, std::memory_order_seq_cst) | 1;
  // SYNC POINT: between the store of bit 0 and the caller's re-check; pairs with notify_all's.
  full_fence();
  return key;
}

void EventCount::wait(std::uint32_t key, Deadline deadline) {
  const auto left = std::min<Deadline::Clock::duration>(deadline.left(), kSlice);
  if (left <= left.zero()) return;
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
  const timespec timeout{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
  // Woken, timed out, interrupted, or the word has moved on already: the caller loops in any case.
  futex(&word_, FUTEX_WAIT, key, &timeout);
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
  static const int budget = cores() <= 2 ? 0 : 200;
  return budget;
}

}  // namespace gristmill
