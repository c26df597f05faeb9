#include "core/timer_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>
#include <vector>

namespace gristmill {
namespace {

using namespace std::chrono_literals;
using Id = TimerQueue::Id;
using Ids = std::vector<Id>;
using TimePoint = TimerQueue::TimePoint;

TimePoint at(std::int64_t ns) { return TimePoint(std::chrono::nanoseconds(ns)); }

// The same contract by the plainest means: a list that is searched.
class Model {
 public:
  void schedule(Id id, TimePoint deadline) { timers_.push_back({id, deadline}); }
  bool restart(Id id, TimePoint deadline) {
    const auto found = find(id);
    if (found == timers_.end()) return false;
    found->deadline = deadline;
    return true;
  }
  bool cancel(Id id) {
    const auto found = find(id);
    if (found == timers_.end()) return false;
    timers_.erase(found);
    return true;
  }
  Ids expire(TimePoint now) {
    std::vector<Timer> due;
    std::vector<Timer> rest;
    for (const Timer& timer : timers_) {
      (timer.deadline <= now && timer.deadline != TimerQueue::kNever ? due : rest).push_back(timer);
    }
    timers_ = rest;
    std::stable_sort(due.begin(), due.end(),
                     [](const Timer& a, const Timer& b) { return a.deadline < b.deadline; });
    Ids ids;
    for (const Timer& timer : due) ids.push_back(timer.id);
    return ids;
  }
  std::optional<TimePoint> next_deadline() const {
    if (timers_.empty()) return std::nullopt;
    return std::min_element(timers_.begin(), timers_.end(),
                            [](const Timer& a, const Timer& b) { return a.deadline < b.deadline; })
        ->deadline;
  }
  std::size_t size() const { return timers_.size(); }
  Id id(std::size_t index) const { return timers_[index].id; }

 private:
  struct Timer {
    Id id;
    TimePoint deadline;
  };
  std::vector<Timer>::iterator find(Id id) {
    return std::find_if(timers_.begin(), timers_.end(), [&](const Timer& timer) { return timer.id == id; });
  }
  std::vector<Timer> timers_;  // in the order in which they were scheduled
};

TEST(TimerQueueTest, ExpiresByDeadline) {
  TimerQueue timers;
  const Id late = timers.schedule(at(30));
  const Id early = timers.schedule(at(10));
  const Id middle = timers.schedule(at(20));
  EXPECT_EQ(timers.size(), 3u);
  EXPECT_EQ(timers.next_deadline(), at(10));
  EXPECT_EQ(timers.expire(at(9)), Ids{});
  EXPECT_EQ(timers.expire(at(20)), (Ids{early, middle}));
  EXPECT_EQ(timers.expire(at(20)), Ids{});
  EXPECT_EQ(timers.next_deadline(), at(30));
  EXPECT_EQ(timers.expire(at(1000)), Ids{late});
  EXPECT_TRUE(timers.empty());
  EXPECT_EQ(timers.next_deadline(), std::nullopt);
}

TEST(TimerQueueTest, EqualDeadlinesExpireInTheOrderOfScheduling) {
  TimerQueue timers;
  Ids ids;
  for (int i = 0; i < 100; ++i) ids.push_back(timers.schedule(at(i % 2 == 0 ? 5 : 1000)));
  // Restarts do not change a timer's place among its equals, whichever way they lead there.
  for (std::size_t i = ids.size(); i-- > 0;) ASSERT_TRUE(timers.restart(ids[i], at(i % 3 == 0 ? 7000 : 3)));
  for (const Id id : ids) ASSERT_TRUE(timers.restart(id, at(40)));
  EXPECT_EQ(timers.expire(at(40)), ids);
}

TEST(TimerQueueTest, ARestartMovesTheDeadlineEitherWay) {
  TimerQueue timers;
  const Id a = timers.schedule(at(10));
  const Id b = timers.schedule(at(20));
  ASSERT_TRUE(timers.restart(a, at(30)));
  EXPECT_EQ(timers.next_deadline(), at(20));
  EXPECT_EQ(timers.deadline(a), at(30));
  ASSERT_TRUE(timers.restart(a, at(5)));
  EXPECT_EQ(timers.next_deadline(), at(5));
  ASSERT_TRUE(timers.restart(a, at(25)));
  ASSERT_TRUE(timers.restart(a, at(22)));  // earlier, but not before what the queue knows already
  EXPECT_EQ(timers.expire(at(21)), Ids{b});
  EXPECT_EQ(timers.expire(at(22)), Ids{a});
}

TEST(TimerQueueTest, AStaleIdIsRefusedAlsoWhenItsMemoryIsUsedAgain) {
  TimerQueue timers;
  const Id expired = timers.schedule(at(1));
  ASSERT_EQ(timers.expire(at(1)), Ids{expired});
  const Id cancelled = timers.schedule(at(2));
  ASSERT_TRUE(timers.cancel(cancelled));
  const Id living = timers.schedule(at(3));
  for (const Id id : {expired, cancelled, Id{0}, living + 1, living + (Id{1} << 32), ~Id{0}}) {
    EXPECT_FALSE(timers.restart(id, at(0))) << id;
    EXPECT_FALSE(timers.cancel(id)) << id;
    EXPECT_EQ(timers.deadline(id), std::nullopt) << id;
  }
  EXPECT_EQ(timers.next_deadline(), at(3));
  EXPECT_EQ(timers.size(), 1u);
}

TEST(TimerQueueTest, DeadlinesInThePastAreDueAtOnce) {
  TimerQueue timers;
  ASSERT_EQ(timers.expire(at(1'000'000)), Ids{});
  const Id past = timers.schedule(at(-5));
  const Id first = timers.schedule(TimePoint::min());
  EXPECT_EQ(timers.next_deadline(), TimePoint::min());
  EXPECT_EQ(timers.expire(at(1'000'000)), (Ids{first, past}));
}

TEST(TimerQueueTest, AClockThatGoesBackLosesNothing) {
  TimerQueue timers;
  const Id a = timers.schedule(at(10));
  ASSERT_EQ(timers.expire(at(9)), Ids{});
  EXPECT_EQ(timers.expire(at(-100)), Ids{});
  const Id b = timers.schedule(at(-50));
  EXPECT_EQ(timers.expire(at(-50)), Ids{b});
  EXPECT_EQ(timers.expire(at(10)), Ids{a});
}

TEST(TimerQueueTest, InfiniteDeadlinesNeverCome) {
  TimerQueue timers;
  const Id never = timers.schedule(TimerQueue::kNever);
  const Id last = timers.schedule(TimerQueue::kNever - 1ns);
  EXPECT_EQ(timers.expire(TimerQueue::kNever), Ids{last});
  EXPECT_EQ(timers.next_deadline(), TimerQueue::kNever);
  EXPECT_EQ(timers.size(), 1u);
  ASSERT_TRUE(timers.restart(never, at(3)));
  EXPECT_EQ(timers.expire(at(3)), Ids{never});
}

TEST(TimerQueueTest, TheNextDeadlineIsExactWhenEveryTimerWasRestarted) {
  TimerQueue timers;
  Ids ids;
  for (int i = 0; i < 5000; ++i) ids.push_back(timers.schedule(at(i)));
  for (int round = 1; round <= 3; ++round) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      ASSERT_TRUE(timers.restart(ids[i], at(round * 10'000 + static_cast<int>(ids.size() - i))));
    }
    EXPECT_EQ(timers.next_deadline(), at(round * 10'000 + 1));
  }
  std::reverse(ids.begin(), ids.end());
  EXPECT_EQ(timers.expire(at(1'000'000)), ids);
}

TEST(TimerQueueTest, RestartsAndReplacementsAddNoTimers) {
  TimerQueue timers;
  Ids ids;
  for (int i = 0; i < 1000; ++i) ids.push_back(timers.schedule(at(600'000)));
  for (int i = 0; i < 100'000; ++i) {
    Id& id = ids[static_cast<std::size_t>(i) % ids.size()];
    if (i % 3 == 0) {
      ASSERT_TRUE(timers.cancel(id));
      id = timers.schedule(at(600'000 + i));
    } else {
      ASSERT_TRUE(timers.restart(id, at(600'000 + i)));
    }
    ASSERT_EQ(timers.expire(at(i)), Ids{});
    ASSERT_EQ(timers.size(), ids.size());
    // The low half of an id is its place in memory: no more of them than there were timers at once.
    ASSERT_LT(id & 0xffffffffu, ids.size());
  }
}

TEST(TimerQueueTest, WorksOnAfterTheLastTimerOfManyHasGone) {
  TimerQueue timers;
  Ids old;
  for (int round = 0; round < 3; ++round) {
    Ids ids;
    for (int i = 0; i < 5000; ++i) ids.push_back(timers.schedule(at(i)));
    for (const Id id : old) ASSERT_FALSE(timers.restart(id, at(0)));
    EXPECT_EQ(timers.expire(at(5000)), ids);
    EXPECT_TRUE(timers.empty());
    old = ids;
  }
}

// Random calls against the model: deadlines among few values (many ties), near, far, past and infinite.
class TimerQueueProperty : public testing::TestWithParam<std::uint32_t> {};

TEST_P(TimerQueueProperty, DoesWhatAListThatIsSearchedDoes) {
  std::mt19937_64 random(GetParam());
  const auto below = [&](std::uint64_t n) { return random() % n; };
  // Sizes and mixtures differ with the seed, so that the queue grows, shrinks and becomes empty.
  const std::uint64_t most = std::uint64_t{1} << below(10);
  const std::uint64_t span = std::uint64_t{1} << (2 + below(20));
  const std::uint64_t expiring = 1 + below(20);
  TimerQueue timers;
  Model model;
  Ids gone{0, 12345};
  std::int64_t now = 0;
  const auto deadline = [&] {
    if (below(50) == 0) return TimerQueue::kNever;
    if (below(50) == 0) return TimePoint::min();
    return at(now - static_cast<std::int64_t>(span / 8) + static_cast<std::int64_t>(below(span)));
  };
  const auto any_id = [&] {
    return model.size() == 0 || below(20) == 0 ? gone[below(gone.size())] : model.id(below(model.size()));
  };
  for (int step = 0; step < 4000; ++step) {
    const std::uint64_t choice = below(100);
    if (choice < expiring) {
      now += static_cast<std::int64_t>(below(span)) - (below(10) == 0 ? static_cast<std::int64_t>(span) : 0);
      const Ids expected = model.expire(at(now));
      ASSERT_EQ(timers.expire(at(now)), expected) << "step " << step;
      gone.insert(gone.end(), expected.begin(), expected.end());
    } else if (choice < 40 && model.size() < most) {
      const TimePoint when = deadline();
      const Id id = timers.schedule(when);
      ASSERT_EQ(std::count(gone.begin(), gone.end(), id), 0);
      model.schedule(id, when);
    } else if (choice < 55) {
      const Id id = any_id();
      const bool lived = model.cancel(id);
      ASSERT_EQ(timers.cancel(id), lived) << "step " << step;
      if (lived) gone.push_back(id);
    } else {
      const Id id = any_id();
      const TimePoint when = deadline();
      ASSERT_EQ(timers.restart(id, when), model.restart(id, when)) << "step " << step;
    }
    ASSERT_EQ(timers.size(), model.size());
    if (below(3) != 0) continue;
    ASSERT_EQ(timers.next_deadline(), model.next_deadline()) << "step " << step;
  }
  ASSERT_EQ(timers.expire(TimerQueue::kNever), model.expire(TimerQueue::kNever));
}

INSTANTIATE_TEST_SUITE_P(Seeds, TimerQueueProperty, testing::Range(1u, 41u));

}  // namespace
}  // namespace gristmill
