#pragma once

// How long a waiter should look before it sleeps: as long as looking has paid off lately. What it waits
// for usually comes at a rhythm. A wait that ended soon raises the budget to twice its length; one that
// had to sleep lowers it, until it is not worth anything; now and then the least is tried again.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace gristmill {

// In private memory. Any thread; the numbers are hints, and a lost update does no harm.
class SpinBudget {
 public:
  using Nanoseconds = std::chrono::nanoseconds;
  // Beyond this, a sleep (5 to 10 µs to wake up from) is the better use of the core.
  static constexpr Nanoseconds kMost{20'000};
  static constexpr Nanoseconds kLeast{1'000};
  static constexpr std::uint32_t kTryEvery = 16;

  // cores: that this process may use. With one or two, whoever is waited for needs the core that a
  // spinner would burn: the budget is always zero.
  explicit SpinBudget(int cores) : scarce_(cores <= 2) {}

  Nanoseconds now() {
    if (scarce_) return Nanoseconds{0};
    const std::int64_t budget = budget_ns_.load(std::memory_order_relaxed);
    if (budget >= kLeast.count()) return Nanoseconds{budget};
    const std::uint32_t waits = idle_waits_.fetch_add(1, std::memory_order_relaxed);
    return waits % kTryEvery == 0 ? kLeast : Nanoseconds{0};
  }
  // What was waited for came after `waited` of spinning.
  void paid_off(Nanoseconds waited) {
    const std::int64_t budget = budget_ns_.load(std::memory_order_relaxed);
    const std::int64_t wanted = std::clamp(2 * waited, kLeast, kMost).count();
    // Up at once, down by and by.
    budget_ns_.store(wanted > budget ? wanted : budget - (budget - wanted) / 8, std::memory_order_relaxed);
  }
  // It did not come while this waiter spun.
  void in_vain() {
    const std::int64_t budget = budget_ns_.load(std::memory_order_relaxed);
    budget_ns_.store(budget < kLeast.count() ? 0 : budget - budget / 4, std::memory_order_relaxed);
  }

 private:
  const bool scarce_;
  std::atomic<std::int64_t> budget_ns_{kLeast.count()};
  std::atomic<std::uint32_t> idle_waits_{1};
};

}  // namespace gristmill
