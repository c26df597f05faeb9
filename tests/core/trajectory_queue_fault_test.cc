// A process is killed or stopped at every point that it passes in put, recover, get and release.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "core/fault_point.h"
#include "tests/core/forked.h"
#include "tests/core/trajectory_fixture.h"

#ifdef GRISTMILL_FAULT_POINTS

namespace gristmill {
namespace {

using namespace std::chrono_literals;
using Outcome = TrajectoryQueue::Outcome;
using Tags = std::vector<std::uint64_t>;
using fault::Action;
using Body = std::function<void(TrajectoryQueue&)>;

constexpr std::int64_t kCapacity = 4;
constexpr std::uint64_t kBefore = 1000;  // tag of what was acknowledged before the death
constexpr std::uint64_t kAfter = 2000;   // tags of what is put after it

void put_three(TrajectoryQueue& queue) { Grist(0, 3).put(queue, Deadline::in(20s)); }

// In a child that passes `point` for the pass-th time in `body`: true when it was killed there.
bool killed_at(TrajectoryQueue& queue, const std::string& point, int pass, const Body& body) {
  Forked child([&] {
    fault::arm(point, Action::kKill, pass);
    body(queue);
    return 0;
  });
  return child.dies_of(SIGKILL);
}

// What `body` passes on a queue that `prepare` has brought into its state.
std::vector<std::string> points_of(const Body& prepare, const Body& body) {
  const auto queue = fresh_queue(kCapacity);
  prepare(*queue);
  fault::start_recording();
  body(*queue);
  return fault::stop_recording();
}

// After a death: others fill the queue, whose capacity is what it was; whatever comes out is whole,
// once, and all that was acknowledged. Of the dead one's three, any may have been completed.
void expect_sound(TrajectoryQueue& queue, const Tags& acknowledged, const std::string& where) {
  Tags put = acknowledged;
  while (Grist(kAfter + put.size(), 1).put(queue, Deadline::in(1ms)).outcome == Outcome::kOk) {
    put.push_back(kAfter + put.size());
    ASSERT_LE(put.size(), 10u) << where;
  }
  ASSERT_EQ(queue.size(), kCapacity) << where;
  const Tags got = get_tags(queue, kCapacity, Deadline::in(20s));
  ASSERT_EQ(got.size(), static_cast<std::size_t>(kCapacity)) << where;
  std::set<std::uint64_t> distinct(got.begin(), got.end());
  ASSERT_EQ(distinct.size(), got.size()) << "doubled: " << where;
  for (const std::uint64_t tag : put) ASSERT_EQ(distinct.erase(tag), 1u) << tag << " is lost: " << where;
  for (const std::uint64_t tag : distinct) ASSERT_LT(tag, 3u) << where;
  // And once more round, to show that every place is as good as new.
  ASSERT_TRUE(put_each(queue, 3000, kCapacity)) << where;
  ASSERT_EQ(get_tags(queue, kCapacity), (Tags{3000, 3001, 3002, 3003})) << where;
}

// Kills `body` at each pass of each point, after `prepare`; then expects a sound queue.
void kill_everywhere(const Body& prepare, const Body& body, const Tags& acknowledged,
                     std::size_t least_points) {
  const auto points = points_of(prepare, body);
  ASSERT_GE(points.size(), least_points);
  for (const std::string& point : points) {
    for (int pass = 1;; ++pass) {
      const auto queue = fresh_queue(kCapacity);
      prepare(*queue);
      if (!killed_at(*queue, point, pass, body)) {
        ASSERT_GT(pass, 1) << point << " was not passed";
        break;
      }
      expect_sound(*queue, acknowledged, point + " " + std::to_string(pass));
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

void acknowledge_one(TrajectoryQueue& queue) { ASSERT_TRUE(put_each(queue, kBefore, 1)); }

// One acknowledged trajectory, and three places of a claimant that is dead.
void leave_claimed(TrajectoryQueue& queue) {
  acknowledge_one(queue);
  ASSERT_TRUE(killed_at(queue, "put.copied", 1, put_three));
}

void leave_abandoned(TrajectoryQueue& queue) {
  leave_claimed(queue);
  ASSERT_EQ(queue.recover(), 3);
}

TEST(TrajectoryQueueFault, AProducerKilledAtAnyPointOfAPutLeavesWholeTrajectoriesOrNone) {
  kill_everywhere(acknowledge_one, put_three, {kBefore}, 9);
}

TEST(TrajectoryQueueFault, AProducerKilledAtAnyPointOfARefillLeavesThePlacesToTheNext) {
  kill_everywhere(leave_abandoned, put_three, {kBefore}, 10);
}

TEST(TrajectoryQueueFault, WhoeverIsKilledAtAnyPointOfARecoveryLeavesItToTheNext) {
  kill_everywhere(
      leave_claimed, [](TrajectoryQueue& queue) { queue.recover(); }, {kBefore}, 6);
}

TEST(TrajectoryQueueFault, WhoeverIsKilledAtAnyPointOfARepairLeavesItToTheNext) {
  const auto die_holding_the_lock = [](TrajectoryQueue& queue) {
    leave_abandoned(queue);
    ASSERT_TRUE(killed_at(queue, "refill.word", 2, put_three));
  };
  const Body recover_and_put = [](TrajectoryQueue& queue) {
    queue.recover();
    put_three(queue);
  };
  const auto points = points_of(die_holding_the_lock, recover_and_put);
  ASSERT_NE(std::find(points.begin(), points.end(), "repair.counted"), points.end());
  kill_everywhere(die_holding_the_lock, recover_and_put, {kBefore}, 14);
}

TEST(TrajectoryQueueFault, AWaitingPutKilledAtAnyPointTakesNothingWithIt) {
  const auto fill = [](TrajectoryQueue& queue) { ASSERT_TRUE(put_each(queue, 0, kCapacity)); };
  const Body wait = [](TrajectoryQueue& queue) { Grist(50, 1).put(queue, Deadline::now()); };
  for (const std::string& point : points_of(fill, wait)) {
    const auto queue = fresh_queue(kCapacity);
    fill(*queue);
    ASSERT_TRUE(killed_at(*queue, point, 1, wait)) << point;
    EXPECT_EQ(get_tags(*queue, kCapacity), (Tags{0, 1, 2, 3})) << point;
    ASSERT_TRUE(put_each(*queue, 4, kCapacity)) << point;
    EXPECT_EQ(get_tags(*queue, kCapacity), (Tags{4, 5, 6, 7})) << point;
  }
}

TEST(TrajectoryQueueFault, AConsumerKilledAtAnyPointLeavesWhatItDidNotReleaseToTheNext) {
  const auto fill = [](TrajectoryQueue& queue) { ASSERT_TRUE(put_each(queue, 0, kCapacity)); };
  const Body consume = [](TrajectoryQueue& queue) {
    auto first = queue.get_many(1, Deadline::in(20s));
    auto second = queue.get_many(2, Deadline::in(20s));
    second.batch.release();
    first.batch.release();
    queue.get_many(3, Deadline::now());  // there is one only
  };
  const auto points = points_of(fill, consume);
  ASSERT_GE(points.size(), 6u);
  for (const std::string& point : points) {
    for (int pass = 1;; ++pass) {
      const auto queue = fresh_queue(kCapacity);
      fill(*queue);
      if (!killed_at(*queue, point, pass, consume)) {
        ASSERT_GT(pass, 1) << point;
        break;
      }
      const auto left = static_cast<std::uint64_t>(queue->size());
      // Released in the wrong order, the three are free at once or not at all.
      ASSERT_TRUE(left == 4 || left == 1) << point;
      Tags expected;
      for (std::uint64_t tag = 4 - left; tag < 4; ++tag) expected.push_back(tag);
      EXPECT_EQ(get_tags(*queue, static_cast<std::int64_t>(left)), expected) << point << " " << pass;
      ASSERT_TRUE(put_each(*queue, 4, kCapacity)) << point;
      EXPECT_EQ(get_tags(*queue, kCapacity), (Tags{4, 5, 6, 7})) << point;
    }
  }
}

TEST(TrajectoryQueueFault, AConsumerKilledAmidPassingAbandonedPlacesOverLeavesTheRest) {
  const auto leave_holes = [](TrajectoryQueue& queue) {
    ASSERT_TRUE(
        killed_at(queue, "put.copied", 1, [](TrajectoryQueue& q) { Grist(0, 2).put(q, Deadline::in(20s)); }));
    ASSERT_TRUE(put_each(queue, kBefore, 1));
    queue.close();
  };
  const Body drain = [](TrajectoryQueue& queue) { get_tags(queue, 2, Deadline::in(20s)); };
  for (const std::string& point : points_of(leave_holes, drain)) {
    for (int pass = 1;; ++pass) {
      const auto queue = fresh_queue(kCapacity);
      leave_holes(*queue);
      if (!killed_at(*queue, point, pass, drain)) break;
      const Tags got = get_tags(*queue, 2, Deadline::in(20s));
      EXPECT_TRUE(got == Tags{kBefore} || (got.empty() && queue->size() == 0)) << point << " " << pass;
      EXPECT_EQ(queue->get_many(2, Deadline::in(20s)).outcome, Outcome::kClosed) << point;
    }
  }
}

TEST(TrajectoryQueueFault, CloseKilledAtAnyPointHasClosedOrNot) {
  const Body close = [](TrajectoryQueue& queue) { queue.close(); };
  for (const std::string& point : points_of(acknowledge_one, close)) {
    const auto queue = fresh_queue(kCapacity);
    acknowledge_one(*queue);
    ASSERT_TRUE(killed_at(*queue, point, 1, close));
    queue->close();
    EXPECT_EQ(get_tags(*queue, 2, Deadline::in(20s)), (Tags{kBefore}));
  }
}

TEST(TrajectoryQueueFault, StatisticsTellOfTheDead) {
  const auto queue = fresh_queue(kCapacity);
  leave_claimed(*queue);
  EXPECT_EQ(queue->statistics().abandoned, 0u);
  EXPECT_EQ(queue->recover(), 3);
  EXPECT_EQ(queue->recover(), 0);
  EXPECT_EQ(queue->statistics().abandoned, 3u);
  ASSERT_TRUE(put_each(*queue, 0, 2));
  EXPECT_EQ(queue->statistics().refilled, 2u);
  ASSERT_TRUE(killed_at(*queue, "put.claimed", 1, put_three));
  ASSERT_TRUE(put_each(*queue, 2, 1));
  const TrajectoryQueueStatistics statistics = queue->statistics();
  EXPECT_EQ(statistics.owner_deaths, 1u);
  EXPECT_EQ(statistics.abandoned, 4u);
  EXPECT_EQ(statistics.refilled, 4u);
  EXPECT_EQ(statistics.puts, 4u);
}

TEST(TrajectoryQueueFault, AStoppedClaimantKeepsItsPlaceAndOthersGoOnAroundIt) {
  const auto queue = fresh_queue(kCapacity);
  Forked claimant([&] {
    fault::arm("put.copied", Action::kStop);
    return Grist(0, 1).put(*queue, Deadline::in(20s)).outcome == Outcome::kOk ? 0 : 1;
  });
  ASSERT_TRUE(claimant.wait_stopped());
  ASSERT_TRUE(put_each(*queue, 1, 3));
  EXPECT_EQ(Grist(9, 1).put(*queue, Deadline::in(120ms)).outcome, Outcome::kTimedOut);
  EXPECT_EQ(queue->get_many(1, Deadline::in(120ms)).outcome, Outcome::kTimedOut);
  EXPECT_EQ(queue->recover(), 0);
  claimant.signal(SIGCONT);
  EXPECT_EQ(get_tags(*queue, 4, Deadline::in(20s)), (Tags{0, 1, 2, 3}));
  EXPECT_TRUE(claimant.succeeds());
  EXPECT_EQ(queue->statistics().abandoned, 0u);
}

TEST(TrajectoryQueueFault, AStoppedHolderOfTheLockTimesOthersOutAndIsNotRobbed) {
  const auto queue = fresh_queue(kCapacity);
  for (const bool kill_it : {false, true}) {
    Forked holder([&] {
      fault::arm("put.claimed", Action::kStop);
      return Grist(0, 1).put(*queue, Deadline::in(20s)).outcome == Outcome::kOk ? 0 : 1;
    });
    ASSERT_TRUE(holder.wait_stopped());
    EXPECT_EQ(Grist(1, 1).put(*queue, Deadline::in(60ms)).outcome, Outcome::kTimedOut);
    EXPECT_EQ(queue->get_many(1, Deadline::in(60ms)).outcome, Outcome::kTimedOut);
    if (kill_it) {
      holder.kill();
      EXPECT_EQ(Grist(1, 4).put(*queue, Deadline::in(20s)).put, 4);
      EXPECT_EQ(get_tags(*queue, 4, Deadline::in(20s)).size(), 4u);
      EXPECT_EQ(queue->statistics().owner_deaths, 1u);
    } else {
      holder.signal(SIGCONT);
      EXPECT_TRUE(holder.succeeds());
      EXPECT_EQ(get_tags(*queue, 1, Deadline::in(20s)), (Tags{0}));
    }
  }
}

TEST(TrajectoryQueueFault, WaitersRecoverByThemselvesWhatADeadProducerClaimed) {
  const auto queue = fresh_queue(kCapacity);
  ASSERT_TRUE(killed_at(*queue, "put.copied", 1,
                        [](TrajectoryQueue& q) { Grist(0, kCapacity).put(q, Deadline::in(20s)); }));
  // The queue is full of a dead process's claims, and nobody tells the next producer.
  EXPECT_EQ(Grist(5, 4).put(*queue, Deadline::in(20s)).put, 4);
  EXPECT_EQ(get_tags(*queue, 4), (Tags{5, 6, 7, 8}));
}

TEST(TrajectoryQueueFault, AConsumerAsleepIsWokenWhenAHoleBeforeItIsFilled) {
  const auto queue = fresh_queue(kCapacity);
  ASSERT_TRUE(
      killed_at(*queue, "put.copied", 1, [](TrajectoryQueue& q) { Grist(0, 1).put(q, Deadline::in(20s)); }));
  ASSERT_TRUE(put_each(*queue, 1, 2));
  Forked consumer([&] { return get_tags(*queue, 3, Deadline::in(20s)) == Tags{7, 1, 2} ? 0 : 1; });
  // Its slices find the dead claimant out.
  ASSERT_TRUE(eventually([&] { return queue->statistics().abandoned == 1; }));
  ASSERT_TRUE(put_each(*queue, 7, 1));
  EXPECT_TRUE(consumer.succeeds());
}

TEST(TrajectoryQueueFault, AClosedQueueIsDrainedPastTheDead) {
  const auto queue = fresh_queue(kCapacity);
  ASSERT_TRUE(put_each(*queue, 0, 1));
  ASSERT_TRUE(
      killed_at(*queue, "put.copied", 1, [](TrajectoryQueue& q) { Grist(0, 2).put(q, Deadline::in(20s)); }));
  ASSERT_TRUE(put_each(*queue, 1, 1));
  queue->close();
  EXPECT_EQ(get_tags(*queue, 4, Deadline::in(20s)), (Tags{0}));
  EXPECT_EQ(get_tags(*queue, 4, Deadline::in(20s)), (Tags{1}));
  EXPECT_EQ(queue->get_many(4, Deadline::in(20s)).outcome, Outcome::kClosed);
  EXPECT_EQ(queue->size(), 0);
}

TEST(TrajectoryQueueFault, APutThatCloseOvertakesIsRefusedAndLeavesNothing) {
  for (const std::string point : {"put.locked", "put.word"}) {
    const auto queue = fresh_queue(kCapacity);
    Forked producer([&] {
      fault::arm(point, Action::kStop);
      const auto put = Grist(0, 2).put(*queue, Deadline::in(20s));
      return put.outcome == Outcome::kClosed && put.put == 0 ? 0 : 1;
    });
    ASSERT_TRUE(producer.wait_stopped());
    queue->close();
    EXPECT_EQ(queue->get_many(1, Deadline::in(20s)).outcome, Outcome::kClosed) << point;
    producer.signal(SIGCONT);
    EXPECT_TRUE(producer.succeeds()) << point;
    EXPECT_EQ(queue->get_many(1, Deadline::in(20s)).outcome, Outcome::kClosed) << point;
  }
}

TEST(TrajectoryQueueFault, ARefillThatCloseOvertakesIsDeliveredAsFarAsItIsAcknowledged) {
  const auto queue = fresh_queue(kCapacity);
  leave_abandoned(*queue);
  SharedWithChildren<std::atomic<std::int64_t>> acknowledged;
  Forked producer([&] {
    fault::arm("refill.word", Action::kStop);
    acknowledged->store(Grist(0, 3).put(*queue, Deadline::in(20s)).put);
    return 0;
  });
  ASSERT_TRUE(producer.wait_stopped());
  queue->close();
  EXPECT_EQ(get_tags(*queue, 1, Deadline::in(20s)), (Tags{kBefore}));
  EXPECT_EQ(queue->get_many(1, Deadline::in(60ms)).outcome, Outcome::kTimedOut) << "a put is under way";
  producer.signal(SIGCONT);
  std::int64_t got = 0;
  while (!get_tags(*queue, 1, Deadline::in(20s)).empty()) ++got;
  EXPECT_TRUE(producer.succeeds());
  EXPECT_GE(got, 1);
  EXPECT_EQ(got, acknowledged->load());
}

TEST(TrajectoryQueueFault, MoreDeadProducersThanThereAreLeasesDoNotExhaustThem) {
  const auto queue = fresh_queue(kCapacity);
  for (int i = 0; i < 300; ++i) ASSERT_TRUE(killed_at(*queue, "put.leased", 1, put_three)) << i;
  ASSERT_TRUE(Grist(0, 4).put(*queue, Deadline::in(20s)).put == 4);
  EXPECT_EQ(get_tags(*queue, 4), (Tags{0, 1, 2, 3}));
}

TEST(TrajectoryQueueFault, ACreatorKilledAtAnyPointLeavesWhatTheSweeperRemoves) {
  fault::start_recording();
  fresh_queue(kCapacity);
  const auto points = fault::stop_recording();
  for (const std::string& point : points) {
    Forked creator([&] {
      fault::arm(point, Action::kKill);
      fresh_queue(kCapacity);
      return 0;
    });
    const pid_t pid = creator.pid();
    ASSERT_TRUE(creator.dies_of(SIGKILL)) << point;
    bool swept = false;
    for (const SegmentInfo& segment : sweep_segments()) swept |= segment.owner.pid == pid;
    EXPECT_TRUE(swept) << point;
  }
}

}  // namespace
}  // namespace gristmill

#endif
