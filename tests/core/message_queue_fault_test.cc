// A process is killed or stopped at every point that it passes in put, reserve, get, take, release,
// drop, recovery and repair.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <set>
#include <utility>

#include "core/fault_point.h"
#include "tests/core/forked.h"
#include "tests/core/message_fixture.h"

#ifdef GRISTMILL_FAULT_POINTS

namespace gristmill {
namespace {

using namespace std::chrono_literals;
using Outcome = MessageQueue::Outcome;
using fault::Action;
using Body = std::function<void(MessageQueue&)>;
using Bytes = std::span<const std::byte>;

constexpr std::uint64_t kRing = 40'000;
constexpr std::uint64_t kBefore = 700;  // tags of what was acknowledged before the death
constexpr std::uint64_t kAfter = 7000;  // tags of what is put after it

// Tags 0 … 6 are the dead one's: small ones in one go, then large ones.
void put_seven(MessageQueue& queue) {
  std::vector<MessageBytes> messages;
  for (std::uint64_t tag = 0; tag < 7; ++tag) messages.push_back(message_of(tag, length_of(tag)));
  const std::vector<Bytes> spans(messages.begin(), messages.end());
  queue.put_many(spans, Deadline::in(20s));
}

void reserve_two(MessageQueue& queue) {
  auto kept = queue.reserve(6000, Deadline::in(20s));
  auto abandoned = queue.reserve(100, Deadline::in(20s));
  get_tags(queue, 1);  // passes them over
  const MessageBytes message = message_of(5, 5000);
  std::memcpy(kept.reservation.bytes().data(), message.data(), message.size());
  kept.reservation.commit(message.size());
}

bool killed_at(MessageQueue& queue, const std::string& point, int pass, const Body& body) {
  Forked child([&] {
    fault::arm(point, Action::kKill, pass);
    body(queue);
    return 0;
  });
  return child.dies_of(SIGKILL);
}

std::vector<std::string> points_of(const Body& prepare, const Body& body,
                                   Overflow overflow = Overflow::kBlock) {
  const auto queue = fresh_message_queue(kRing, 0, overflow);
  prepare(*queue);
  fault::start_recording();
  body(*queue);
  return fault::stop_recording();
}

// After a death: what comes out is whole, once, in order for each producer, and all that was
// acknowledged, but for what the dead one had taken. Then the whole ring can be filled again.
void expect_sound(MessageQueue& queue, const MessageTags& acknowledged, bool may_have_taken,
                  const std::string& where) {
  queue.recover();
  std::uint64_t put = kAfter;
  while (put < kAfter + 3) {
    ASSERT_EQ(put_tag(queue, put, Deadline::in(20s)), Outcome::kOk) << where;
    ++put;
  }
  MessageTags got;
  while (true) {
    const MessageTags some = get_tags(queue);
    if (some.empty()) break;
    got.insert(got.end(), some.begin(), some.end());
  }
  const std::set<std::uint64_t> distinct(got.begin(), got.end());
  ASSERT_EQ(distinct.size(), got.size()) << "doubled: " << where;
  ASSERT_FALSE(distinct.contains(kTorn)) << "torn: " << where;
  MessageTags old, dead, fresh;
  for (const std::uint64_t tag : got) (tag < 7 ? dead : tag < kAfter ? old : fresh).push_back(tag);
  ASSERT_EQ(fresh, tags_between(kAfter, put)) << where;
  ASSERT_TRUE(std::is_sorted(old.begin(), old.end())) << where;
  ASSERT_TRUE(std::is_sorted(dead.begin(), dead.end())) << where;
  if (may_have_taken) {
    ASSERT_TRUE(std::includes(acknowledged.begin(), acknowledged.end(), old.begin(), old.end())) << where;
  } else {
    ASSERT_EQ(old, acknowledged) << where;
  }
  ASSERT_EQ(queue.bytes_used(), 0u) << "capacity shrank: " << where;
  ASSERT_EQ(queue.size(), 0) << where;
  ASSERT_TRUE(queue.holders().empty()) << where;
  for (int round = 0; round < 2; ++round) {
    ASSERT_EQ(queue.put(message_of(1, queue.largest_message()), Deadline::now()).outcome, Outcome::kOk)
        << where;
    ASSERT_EQ(get_tags(queue), MessageTags{1}) << where;
  }
}

// Kills `body` at each pass of each point, after `prepare`; then expects a sound queue.
void kill_everywhere(const Body& prepare, const Body& body, const MessageTags& acknowledged,
                     bool may_have_taken, std::size_t least_points, Overflow overflow = Overflow::kBlock) {
  const auto points = points_of(prepare, body, overflow);
  ASSERT_GE(points.size(), least_points);
  for (const std::string& point : points) {
    for (int pass = 1; pass < 20; ++pass) {
      const auto queue = fresh_message_queue(kRing, 0, overflow);
      prepare(*queue);
      if (!killed_at(*queue, point, pass, body)) {
        ASSERT_GT(pass, 1) << point << " was not passed";
        break;
      }
      expect_sound(*queue, acknowledged, may_have_taken, point + " " + std::to_string(pass));
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

const MessageTags kAcknowledged = tags_between(kBefore, kBefore + 7);

void acknowledge(MessageQueue& queue) {
  for (const std::uint64_t tag : kAcknowledged) ASSERT_EQ(put_tag(queue, tag), Outcome::kOk);
}

TEST(MessageQueueFault, AProducerKilledAtAnyPointLeavesWholeMessagesOrNone) {
  kill_everywhere(acknowledge, put_seven, kAcknowledged, false, 11);
}

TEST(MessageQueueFault, AProducerKilledAtAnyPointOfAReservationLeavesTheSpaceToOthers) {
  kill_everywhere([](MessageQueue&) {}, reserve_two, {}, false, 12);
}

TEST(MessageQueueFault, AConsumerKilledAtAnyPointLeavesMessagesOrHasTakenThem) {
  kill_everywhere(
      acknowledge, [](MessageQueue& queue) { get_tags(queue); }, kAcknowledged, true, 8);
  kill_everywhere(
      acknowledge,
      [](MessageQueue& queue) {
        while (!get_tags(queue, 1).empty()) {
        }
      },
      kAcknowledged, true, 8);
}

TEST(MessageQueueFault, AConsumerKilledBeforeItHasTakenLosesNothing) {
  // One large message: until its copy is done, it is not taken.
  const auto put_one = [](MessageQueue& queue) { ASSERT_EQ(put_tag(queue, kBefore + 6), Outcome::kOk); };
  const Body get = [](MessageQueue& queue) { get_tags(queue, 1); };
  for (const char* point : {"message.get.locked", "message.get.copying", "message.get.behind",
                            "message.get.read", "message.get.advanced", "message.get.large"}) {
    const auto queue = fresh_message_queue(kRing);
    put_one(*queue);
    ASSERT_TRUE(killed_at(*queue, point, 1, get)) << point;
    expect_sound(*queue, {kBefore + 6}, false, point);
  }
  // Small ones: until the cursor has moved.
  for (const char* point : {"message.get.locked", "message.get.copied", "message.get.behind"}) {
    const auto queue = fresh_message_queue(kRing);
    acknowledge(*queue);
    ASSERT_TRUE(killed_at(*queue, point, 1, get)) << point;
    expect_sound(*queue, kAcknowledged, false, point);
  }
}

TEST(MessageQueueFault, AConsumerKilledWhileItHoldsMessagesInPlaceFreesThem) {
  kill_everywhere(
      acknowledge,
      [](MessageQueue& queue) {
        auto first = queue.take(3, MessageQueue::kNoLimit, Deadline::now());
        auto second = queue.take(10, MessageQueue::kNoLimit, Deadline::now());
        second.batch.release();
        first.batch.release();
      },
      kAcknowledged, true, 7);
}

TEST(MessageQueueFault, ADeathAmidALateMessageLosesNothingButWhatWasTaken) {
  const auto leave_late = [](MessageQueue& queue) {
    auto early = queue.reserve(5000, Deadline::now());
    auto too = queue.reserve(24, Deadline::now());
    get_tags(queue);
    const MessageBytes first = message_of(kBefore + 5, 5000);
    const MessageBytes second = message_of(kBefore + 9, 24);
    std::memcpy(early.reservation.bytes().data(), first.data(), first.size());
    std::memcpy(too.reservation.bytes().data(), second.data(), second.size());
    early.reservation.commit();
    too.reservation.commit();
  };
  const MessageTags both = {kBefore + 5, kBefore + 9};
  kill_everywhere(
      leave_late, [](MessageQueue& queue) { get_tags(queue); }, both, true, 6);
  kill_everywhere(
      leave_late,
      [](MessageQueue& queue) { queue.take(10, MessageQueue::kNoLimit, Deadline::now()).batch.release(); },
      both, true, 6);
}

TEST(MessageQueueFault, WhatIsAbandonedOverADeadConsumersMarkIsCountedOnce) {
  const auto queue = fresh_message_queue(kRing);
  auto space = queue->reserve(100, Deadline::now());
  ASSERT_EQ(put_tag(*queue, kBefore), Outcome::kOk);
  // It has marked the reservation as passed, and not moved the cursor.
  ASSERT_TRUE(killed_at(*queue, "message.get.passed", 1, [](MessageQueue& q) { get_tags(q); }));
  space.reservation.abandon();
  EXPECT_EQ(get_tags(*queue), MessageTags{kBefore});
  EXPECT_EQ(queue->statistics().gets, 1u);
  EXPECT_EQ(queue->statistics().skipped, 1u);
}

TEST(MessageQueueFault, WhoeverIsKilledAtAnyPointOfARecoveryLeavesItToTheNext) {
  const auto leave_mess = [](MessageQueue& queue) {
    acknowledge(queue);
    ASSERT_TRUE(killed_at(queue, "message.put.large", 1, put_seven));
    ASSERT_TRUE(killed_at(queue, "message.take.word", 1,
                          [](MessageQueue& q) { q.take(1, MessageQueue::kNoLimit, Deadline::now()); }));
    ASSERT_TRUE(killed_at(queue, "message.get.large", 1, [](MessageQueue& q) { get_tags(q); }));
  };
  kill_everywhere(
      leave_mess, [](MessageQueue& queue) { queue.recover(); }, kAcknowledged, true, 4);
}

TEST(MessageQueueFault, WhoeverIsKilledAtAnyPointOfARepairLeavesItToTheNext) {
  const auto die_in_locks = [](MessageQueue& queue) {
    acknowledge(queue);
    ASSERT_TRUE(killed_at(queue, "message.put.published", 1, put_seven));
    ASSERT_TRUE(killed_at(queue, "message.take.word", 3,
                          [](MessageQueue& q) { q.take(5, MessageQueue::kNoLimit, Deadline::now()); }));
  };
  const Body put_and_take = [](MessageQueue& queue) {
    put_tag(queue, 6);
    queue.take(1, 1, Deadline::now()).batch.release();
  };
  const auto points = points_of(die_in_locks, put_and_take);
  for (const char* point : {"message.repair.puts", "message.repair.word", "message.get.recounted"}) {
    ASSERT_NE(std::find(points.begin(), points.end(), point), points.end()) << point;
  }
  kill_everywhere(die_in_locks, put_and_take, kAcknowledged, true, 12);
}

TEST(MessageQueueFault, AProducerKilledAtAnyPointOfADropLeavesASoundQueue) {
  const auto fill = [](MessageQueue& queue) {
    for (const std::uint64_t tag : kAcknowledged) ASSERT_EQ(put_tag(queue, tag), Outcome::kOk);
    ASSERT_EQ(queue.put(message_of(6, 18'000), Deadline::now()).outcome, Outcome::kOk);
    get_tags(queue, 1);
  };
  const Body put_large = [](MessageQueue& queue) {
    queue.put(message_of(6, 9000), Deadline::now());
    queue.put(message_of(6, 9000), Deadline::now());
  };
  for (const Overflow overflow : {Overflow::kDropOldest, Overflow::kLatest}) {
    const auto points = points_of(fill, put_large, overflow);
    ASSERT_NE(std::find(points.begin(), points.end(), "message.drop.counted"), points.end());
    for (const std::string& point : points) {
      for (int pass = 1; pass < 10; ++pass) {
        const auto queue = fresh_message_queue(kRing, 0, overflow);
        fill(*queue);
        if (!killed_at(*queue, point, pass, put_large)) break;
        const std::string where = point + " " + std::to_string(pass);
        queue->recover();
        for (const std::uint64_t tag : get_tags(*queue)) ASSERT_NE(tag, kTorn) << where;
        ASSERT_EQ(queue->bytes_used(), 0u) << where;
        ASSERT_EQ(put_tag(*queue, kAfter), Outcome::kOk) << where;
        ASSERT_EQ(get_tags(*queue), MessageTags{kAfter}) << where;
      }
    }
  }
}

TEST(MessageQueueFault, OneWhoIsKilledWhileItWaitsDisturbsNobody) {
  const Body wait_for_message = [](MessageQueue& queue) { get_tags(queue, 1, Deadline::in(20s)); };
  const Body wait_for_space = [](MessageQueue& queue) { put_tag(queue, 6, Deadline::in(20s)); };
  const auto fill = [](MessageQueue& queue) {
    while (put_tag(queue, kBefore + 6) == Outcome::kOk) {
    }
  };
  for (int round = 0; round < 5; ++round) {
    const auto empty = fresh_message_queue(kRing);
    const auto full = fresh_message_queue(kRing);
    fill(*full);
    Forked getter([&] { return wait_for_message(*empty), 0; });
    Forked putter([&] { return wait_for_space(*full), 0; });
    ASSERT_TRUE(eventually([&] { return empty->statistics().get_waits == 1; }));
    ASSERT_TRUE(eventually([&] { return full->statistics().put_waits == 2; }));
    ::usleep(2000);  // most likely asleep by then; the outcome is the same if not
    getter.kill();
    putter.kill();
    Forked next_getter([&] { return get_tags(*empty, 1, Deadline::in(20s)) == MessageTags{3} ? 0 : 1; });
    ASSERT_EQ(put_tag(*empty, 3), Outcome::kOk);
    EXPECT_TRUE(next_getter.succeeds());
    Forked next_putter([&] { return put_tag(*full, 3, Deadline::in(20s)) == Outcome::kOk ? 0 : 1; });
    ASSERT_FALSE(get_tags(*full, 1).empty());
    EXPECT_TRUE(next_putter.succeeds());
  }
}

TEST(MessageQueueFault, OneKilledBetweenItsChangeAndItsWakeDelaysNobodyForLong) {
  const std::pair<const char*, std::uint64_t> deaths[] = {{"message.put.published", 1},  // a small message
                                                          {"message.commit.done", 6}};   // a large one
  for (const auto& [point, tag] : deaths) {
    const auto queue = fresh_message_queue(kRing);
    Forked getter([&] { return get_tags(*queue, 1, Deadline::in(30s)) == MessageTags{tag} ? 0 : 1; });
    ASSERT_TRUE(eventually([&] { return queue->statistics().get_waits == 1; }));
    ASSERT_TRUE(killed_at(*queue, point, 1, [&](MessageQueue& q) { put_tag(q, tag); })) << point;
    EXPECT_TRUE(getter.succeeds()) << point;
  }
}

TEST(MessageQueueFault, AProducerStoppedAmidItsCopyHoldsNobodyUpAndLosesNothing) {
  const auto queue = fresh_message_queue(kRing);
  Forked producer([&] {
    fault::arm("message.put.large", Action::kStop);
    return put_tag(*queue, 6, Deadline::in(20s)) == Outcome::kOk ? 0 : 1;
  });
  ASSERT_TRUE(producer.wait_stopped());
  // Round the ring as often as its reservation allows: nobody takes it.
  for (std::uint64_t tag = 0; tag < 4; ++tag) {
    ASSERT_EQ(put_tag(*queue, tag), Outcome::kOk);
    ASSERT_EQ(get_tags(*queue), MessageTags{tag});
  }
  EXPECT_EQ(queue->recover(), 0);
  ASSERT_EQ(queue->holders().size(), 1u);
  EXPECT_EQ(queue->holders()[0].pid, producer.pid());
  EXPECT_EQ(queue->holders()[0].reserved, 1u);
  producer.signal(SIGCONT);
  EXPECT_TRUE(producer.succeeds());
  EXPECT_EQ(get_tags(*queue), MessageTags{6});
  EXPECT_EQ(queue->bytes_used(), 0u);
}

TEST(MessageQueueFault, OneStoppedAtAnyPointIsWaitedForAndGoesOn) {
  const Body everything = [](MessageQueue& queue) {
    put_seven(queue);
    queue.take(2, MessageQueue::kNoLimit, Deadline::in(20s)).batch.release();
    get_tags(queue, 100, Deadline::in(20s));
  };
  for (const std::string& point : points_of([](MessageQueue&) {}, everything)) {
    const auto queue = fresh_message_queue(kRing);
    Forked stopped([&] {
      fault::arm(point, Action::kStop);
      everything(*queue);
      return 0;
    });
    ASSERT_TRUE(stopped.wait_stopped()) << point;
    // A time-out at most: never an error, never a hang, never something taken from it.
    const Outcome outcome = put_tag(*queue, kAfter, Deadline::now());
    ASSERT_TRUE(outcome == Outcome::kOk || outcome == Outcome::kTimedOut) << point;
    MessageBuffer buffer;
    const Outcome get = queue->get(buffer, Deadline::now());
    ASSERT_TRUE(get == Outcome::kOk || get == Outcome::kTimedOut) << point;
    stopped.signal(SIGCONT);
    ASSERT_TRUE(stopped.succeeds()) << point;
    get_tags(*queue);
    ASSERT_EQ(queue->bytes_used(), 0u) << point;
    ASSERT_EQ(queue->statistics().owner_deaths, 0u) << point;
    ASSERT_EQ(queue->statistics().skipped, 0u) << point;
  }
}

}  // namespace
}  // namespace gristmill

#endif
