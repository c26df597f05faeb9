#include "core/robust_lock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/core/forked.h"

namespace gristmill {
namespace {

using namespace std::chrono_literals;
using Outcome = RobustLock::Outcome;

struct Guarded {
  RobustLock lock;
  std::int64_t value = 0;  // only under the lock
  std::atomic<int> phase{0};
};

TEST(RobustLock, ExcludesThreads) {
  SharedWithChildren<Guarded> guarded;
  guarded->lock.init();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 20'000; ++j) {
        RobustGuard guard(guarded->lock, Deadline::never());
        if (guard.held()) ++guarded->value;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(guarded->value, 80'000);
}

TEST(RobustLock, ExcludesProcesses) {
  SharedWithChildren<Guarded> guarded;
  guarded->lock.init();
  const auto count = [&] {
    for (int j = 0; j < 20'000; ++j) {
      RobustGuard guard(guarded->lock, Deadline::in(20s));
      if (guard.outcome() != Outcome::kLocked) return 1;
      ++guarded->value;
    }
    return 0;
  };
  Forked other(count);
  EXPECT_EQ(count(), 0);
  EXPECT_TRUE(other.succeeds());
  EXPECT_EQ(guarded->value, 40'000);
}

TEST(RobustLock, TheDeathOfAHolderIsToldOnceAndCounted) {
  SharedWithChildren<Guarded> guarded;
  guarded->lock.init();
  for (std::uint64_t deaths = 1; deaths <= 3; ++deaths) {
    Forked holder([&] {
      if (guarded->lock.lock(Deadline::never()) != Outcome::kBroken) ::raise(SIGKILL);
      return 1;
    });
    ASSERT_TRUE(holder.dies_of(SIGKILL));
    {
      RobustGuard guard(guarded->lock, Deadline::in(10s));
      EXPECT_EQ(guard.outcome(), Outcome::kOwnerDied);
      EXPECT_TRUE(guard.held());
    }
    RobustGuard guard(guarded->lock, Deadline::in(10s));
    EXPECT_EQ(guard.outcome(), Outcome::kLocked);
    EXPECT_EQ(guarded->lock.owner_deaths(), deaths);
  }
}

TEST(RobustLock, ARepairerThatDiesIsToldOnToo) {
  SharedWithChildren<Guarded> guarded;
  guarded->lock.init();
  const auto die_holding = [&] {
    Forked holder([&] {
      if (guarded->lock.lock(Deadline::in(10s)) != Outcome::kBroken) ::raise(SIGKILL);
      return 1;
    });
    return holder.dies_of(SIGKILL);
  };
  ASSERT_TRUE(die_holding());
  ASSERT_TRUE(die_holding());  // it was told kOwnerDied, and dies before it unlocks
  RobustGuard guard(guarded->lock, Deadline::in(10s));
  EXPECT_EQ(guard.outcome(), Outcome::kOwnerDied);
  EXPECT_EQ(guarded->lock.owner_deaths(), 2u);
}

TEST(RobustLock, AWaiterIsToldWhenTheHolderDiesMeanwhile) {
  SharedWithChildren<Guarded> guarded;
  guarded->lock.init();
  Forked holder([&] {
    if (guarded->lock.lock(Deadline::never()) != Outcome::kLocked) return 1;
    guarded->phase.store(1);
    while (true) ::pause();
    return 0;
  });
  ASSERT_TRUE(eventually([&] { return guarded->phase.load() == 1; }));
  Forked waiter([&] {
    RobustGuard guard(guarded->lock, Deadline::in(20s));
    return guard.outcome() == Outcome::kOwnerDied ? 0 : 1;
  });
  ::usleep(20'000);  // most likely asleep by then; the outcome is the same if not
  holder.kill();
  EXPECT_TRUE(waiter.succeeds());
}

TEST(RobustLock, AStoppedHolderIsWaitedForUntilTheDeadlineOnly) {
  SharedWithChildren<Guarded> guarded;
  guarded->lock.init();
  Forked holder([&] {
    RobustGuard guard(guarded->lock, Deadline::never());
    ::raise(SIGSTOP);
    return guard.outcome() == Outcome::kLocked ? 0 : 1;
  });
  ASSERT_TRUE(holder.wait_stopped());
  EXPECT_EQ(guarded->lock.lock(Deadline::in(50ms)), Outcome::kTimedOut);
  EXPECT_EQ(guarded->lock.lock(Deadline::now()), Outcome::kTimedOut);
  EXPECT_EQ(guarded->lock.owner_deaths(), 0u);
  holder.signal(SIGCONT);
  EXPECT_TRUE(holder.succeeds());
  RobustGuard guard(guarded->lock, Deadline::in(10s));
  EXPECT_EQ(guard.outcome(), Outcome::kLocked);
}

TEST(RobustLock, DamagedBytesAreBrokenOrADeadHoldersButNeverWaitedFor) {
  SharedWithChildren<Guarded> guarded;
  guarded->lock.init();
  // Some pid that nobody has: as after a death, whoever is told so checks what the lock protects.
  std::memset(static_cast<void*>(&guarded->lock), 0xFF, sizeof(std::uint64_t));
  EXPECT_EQ(guarded->lock.lock(Deadline::in(10s)), Outcome::kOwnerDied);
  guarded->lock.unlock();
  const std::uint64_t nobody = std::uint64_t{1} << 60;
  std::memcpy(static_cast<void*>(&guarded->lock), &nobody, sizeof nobody);
  EXPECT_EQ(guarded->lock.lock(Deadline::in(10s)), Outcome::kBroken);
}

TEST(RobustLock, AWaiterKilledInItsSleepHarmsNobody) {
  SharedWithChildren<Guarded> guarded;
  guarded->lock.init();
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(guarded->lock.lock(Deadline::in(10s)), Outcome::kLocked);
    guarded->phase.store(0);
    Forked victim([&] {
      guarded->phase.store(1);
      return guarded->lock.lock(Deadline::in(20s)) == Outcome::kLocked ? 0 : 1;
    });
    ASSERT_TRUE(eventually([&] { return guarded->phase.load() == 1; }));
    ::usleep(2000);  // most likely asleep by then; the outcome is the same if not
    victim.kill();
    guarded->lock.unlock();
  }
  RobustGuard guard(guarded->lock, Deadline::in(10s));
  EXPECT_EQ(guard.outcome(), Outcome::kLocked);
}

}  // namespace
}  // namespace gristmill
