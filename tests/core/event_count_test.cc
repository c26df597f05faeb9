#include "core/event_count.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/core/forked.h"

namespace gristmill {
namespace {

using namespace std::chrono_literals;

struct Gate {
  EventCount event;
  std::atomic<int> value{0};
  std::atomic<int> waiting{0};
};

TEST(EventCount, AConditionThatHoldsIsNotWaitedFor) {
  EventCount event;
  EXPECT_TRUE(event.await(Deadline::now(), [] { return true; }));
}

TEST(EventCount, AWaitEndsAtItsDeadline) {
  EventCount event;
  const Deadline deadline = Deadline::in(120ms);
  EXPECT_FALSE(event.await(deadline, [] { return false; }));
  EXPECT_TRUE(deadline.passed());
}

TEST(EventCount, ADeadlineThatHasPassedAsksOnceMoreAndDoesNotSleep) {
  EventCount event;
  int asked = 0;
  EXPECT_FALSE(event.await(Deadline::now(), [&] { return ++asked < 0; }));
  EXPECT_GE(asked, 2);
}

TEST(EventCount, ANotificationBetweenPrepareAndWaitIsNotMissed) {
  EventCount event;
  for (int i = 0; i < 1000; ++i) {
    const std::uint32_t key = event.prepare();
    event.notify_all();
    // A thousand slices would be 25 s: the test's own time-out would tell.
    event.wait(key, Deadline::never());
  }
}

TEST(EventCount, NoSleepIsLongerThanASlice) {
  EventCount event;
  const auto start = Deadline::Clock::now();
  event.wait(event.prepare(), Deadline::never());  // nobody notifies
  EXPECT_GE(Deadline::Clock::now() - start, EventCount::kSlice / 2);
}

TEST(EventCount, EverySleeperIsWoken) {
  Gate gate;
  std::vector<std::thread> sleepers;
  for (int i = 0; i < 8; ++i) {
    sleepers.emplace_back([&] {
      gate.waiting.fetch_add(1);
      gate.event.await(Deadline::never(), [&] { return gate.value.load(std::memory_order_acquire) != 0; });
    });
  }
  while (gate.waiting.load() != 8) std::this_thread::yield();
  gate.value.store(1, std::memory_order_release);
  gate.event.notify_all();
  for (std::thread& sleeper : sleepers) sleeper.join();
}

TEST(EventCount, TwoProcessesHandATurnToAndFroWithoutLosingAWake) {
  struct Table {
    EventCount event;
    std::atomic<int> turn{0};
  };
  SharedWithChildren<Table> table;
  constexpr int kTurns = 20'000;
  const auto play = [&](int mine) {
    for (int i = mine; i < kTurns; i += 2) {
      if (!table->event.await(Deadline::in(20s), [&] { return table->turn.load() == i; })) return 1;
      table->turn.store(i + 1);
      table->event.notify_all();
    }
    return 0;
  };
  Forked other([&] { return play(1); });
  EXPECT_EQ(play(0), 0);
  EXPECT_TRUE(other.succeeds());
}

TEST(EventCount, NotifyWakesAsManyAsItIsToldTo) {
  // Each sleeper takes one permit; permits come without a wake for the others, who sleep on.
  struct Permits {
    EventCount event;
    std::atomic<int> left{0};
    std::atomic<int> taken{0};
  };
  SharedWithChildren<Permits> permits;
  std::vector<Forked> sleepers;
  for (int i = 0; i < 6; ++i) {
    sleepers.emplace_back([&] {
      const auto take = [&] {
        int left = permits->left.load();
        while (left > 0 && !permits->left.compare_exchange_weak(left, left - 1)) {
        }
        return left > 0;
      };
      if (!permits->event.await(Deadline::in(20s), take)) return 1;
      permits->taken.fetch_add(1);
      return 0;
    });
  }
  for (int round = 1; round <= 3; ++round) {
    permits->left.store(2);
    permits->event.notify(2);
    ASSERT_TRUE(eventually([&] { return permits->taken.load() == 2 * round; }));
  }
  for (Forked& sleeper : sleepers) EXPECT_TRUE(sleeper.succeeds());
}

TEST(EventCount, OneWhoIsKilledAfterItWasWokenDelaysTheOthersBySlicesOnly) {
  SharedWithChildren<Gate> gate;
  Forked victim([&] {
    gate->waiting.fetch_add(1);
    gate->event.await(Deadline::never(), [] { return false; });
    return 0;
  });
  ASSERT_TRUE(eventually([&] { return gate->waiting.load() == 1; }));
  ASSERT_TRUE(victim.stop());
  gate->event.notify(1);  // counts on a process that will never run again
  victim.kill();
  Forked sleeper([&] {
    gate->waiting.fetch_add(1);
    return gate->event.await(Deadline::in(20s), [&] { return gate->value.load() != 0; }) ? 0 : 1;
  });
  ASSERT_TRUE(eventually([&] { return gate->waiting.load() == 2; }));
  gate->value.store(1);
  gate->event.notify(1);
  EXPECT_TRUE(sleeper.succeeds());
}

TEST(EventCount, AWaiterKilledInItsSleepHarmsNobody) {
  SharedWithChildren<Gate> gate;
  for (int i = 0; i < 20; ++i) {
    gate->value.store(0);
    gate->waiting.store(0);
    Forked victim([&] {
      gate->waiting.store(1);
      gate->event.await(Deadline::never(), [] { return false; });
      return 0;
    });
    ASSERT_TRUE(eventually([&] { return gate->waiting.load() == 1; }));
    victim.kill();
    Forked sleeper([&] {
      return gate->event.await(Deadline::in(20s), [&] { return gate->value.load() != 0; }) ? 0 : 1;
    });
    gate->value.store(1);
    gate->event.notify_all();
    ASSERT_TRUE(sleeper.succeeds());
  }
}

TEST(EventCount, ASignalDoesNotEndAnAwait) {
  SharedWithChildren<Gate> gate;
  Forked sleeper([&] {
    struct sigaction action {};
    action.sa_handler = [](int) {};
    ::sigaction(SIGUSR1, &action, nullptr);
    gate->waiting.store(1);
    return gate->event.await(Deadline::in(20s), [&] { return gate->value.load() != 0; }) ? 0 : 1;
  });
  ASSERT_TRUE(eventually([&] { return gate->waiting.load() == 1; }));
  for (int i = 0; i < 50; ++i) {
    sleeper.signal(SIGUSR1);
    ::usleep(200);
  }
  gate->value.store(1);
  gate->event.notify_all();
  EXPECT_TRUE(sleeper.succeeds());
}

}  // namespace
}  // namespace gristmill
