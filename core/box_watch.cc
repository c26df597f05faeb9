// Waiting for a box's next version.

#include <algorithm>
#include <thread>

#include "core/box_impl.h"

namespace gristmill {

namespace {

// The first look of a reader that nobody can wake; each is twice as long after the one before.
constexpr std::chrono::microseconds kFirstGlance{50};
// Between two looks at the clock, which cost more than these at the box.
constexpr int kLooks = 32;

}  // namespace

std::optional<std::uint64_t> Box::watch(std::uint64_t seen, Deadline deadline,
                                        std::optional<std::chrono::nanoseconds> spin) {
  if (const std::uint64_t now = version(); now > seen) return now;
  SpinBudget& budget = impl_->spin_budget;
  const std::chrono::nanoseconds patience = spin ? *spin : budget.now();
  if (patience > patience.zero() && !deadline.is_now()) {
    const auto started = Deadline::Clock::now();
    auto until = deadline.at();
    if (until - started > patience) until = started + patience;
    auto looked = started;
    do {
      for (int i = 0; i < kLooks; ++i) {
        if (const std::uint64_t now = version(); now > seen) {
          if (!spin) budget.paid_off(looked - started);
          return now;
        }
        __builtin_ia32_pause();
      }
      looked = Deadline::Clock::now();
    } while (looked < until);
    if (!spin) budget.in_vain();
  }
  return impl_->published != nullptr ? sleep_until_after(seen, deadline) : glance_until_after(seen, deadline);
}

std::optional<std::uint64_t> Box::sleep_until_after(std::uint64_t seen, Deadline deadline) {
  EventCount& published = *impl_->published;
  auto woken = EventCount::Woken::kChanged;
  std::uint64_t slept_at = version();
  while (true) {
    const std::uint64_t now = version();
    impl_->check_whole();
    // A writer wakes one watcher, and each that was woken by a new version wakes two: so all awake
    // soon, and the writer pays for one.
    if (woken == EventCount::Woken::kNotified && now > slept_at && published.may_sleep()) published.notify(2);
    if (woken == EventCount::Woken::kTimedOut && now > slept_at) published.forget_woken();
    if (now > seen) return now;
    const std::uint32_t key = published.prepare();
    slept_at = version();
    if (slept_at > seen) return slept_at;
    if (deadline.passed()) return std::nullopt;
    woken = published.wait(key, deadline);
  }
}

// Whoever may write nothing at all cannot tell the writer that somebody waits.
std::optional<std::uint64_t> Box::glance_until_after(std::uint64_t seen, Deadline deadline) {
  std::chrono::microseconds pause = kFirstGlance;
  while (version() <= seen) {
    impl_->check_whole();
    if (deadline.passed()) return std::nullopt;
    std::this_thread::sleep_for(std::min<Deadline::Clock::duration>(pause, deadline.left()));
    pause = std::min<std::chrono::microseconds>(2 * pause, kGlance);
  }
  return version();
}

}  // namespace gristmill
