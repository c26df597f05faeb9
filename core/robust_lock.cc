#include "core/robust_lock.h"

#include <sched.h>

#include <algorithm>
#include <chrono>

namespace gristmill {
namespace {

// A holder that runs is done within the spins; one that was preempted needs the core.
constexpr int kSpins = 30;
constexpr int kYields = 4;
// How late the holder's death, or a wake that was lost, is noticed at first.
constexpr std::chrono::milliseconds kFirstSlice{1};

Deadline sooner(Deadline deadline, std::chrono::milliseconds slice) {
  return deadline.left() <= slice ? deadline : Deadline::in(slice);
}

}  // namespace

void RobustLock::init() {
  static_cast<void>(ProcessIdentity::self());  // throws where locks could not tell who is who
  owner_.store(0, std::memory_order_relaxed);
  owner_deaths_.store(0, std::memory_order_relaxed);
}

RobustLock::Outcome RobustLock::lock_slowly(Deadline deadline) {
  const std::uint64_t self = ProcessIdentity::self_packed();
  const auto take = [&](std::uint64_t from) {
    return owner_.compare_exchange_strong(from, self, std::memory_order_acquire, std::memory_order_relaxed);
  };
  for (int i = 0; i < kSpins + kYields; ++i) {
    if (owner_.load(std::memory_order_relaxed) == 0 && take(0)) return Outcome::kLocked;
    if (i < kSpins) {
      __builtin_ia32_pause();
    } else {
      ::sched_yield();
    }
  }
  auto slice = kFirstSlice;
  auto woken = EventCount::Woken::kChanged;
  while (true) {
    const std::uint32_t key = released_.prepare();
    const std::uint64_t owner = owner_.load(std::memory_order_relaxed);
    if (owner == 0) {
      if (woken == EventCount::Woken::kTimedOut) released_.forget_woken();
      if (take(0)) return Outcome::kLocked;
      continue;
    }
    const ProcessIdentity holder = ProcessIdentity::unpack(owner);
    if (holder.pid == 0) return Outcome::kBroken;
    if (owner != self && holder.proved_dead() && take(owner)) {
      owner_deaths_.store(owner_deaths_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      return Outcome::kOwnerDied;
    }
    if (deadline.passed()) return Outcome::kTimedOut;
    woken = released_.wait(key, sooner(deadline, slice));
    if (woken == EventCount::Woken::kTimedOut) {
      slice = std::min<std::chrono::milliseconds>(slice * 2, EventCount::kSlice);
    }
  }
}

}  // namespace gristmill
