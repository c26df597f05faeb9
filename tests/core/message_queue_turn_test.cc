// Puts that wait for space, and what becomes of their turn when they are killed, stopped, or give up.

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "core/fault_point.h"
#include "tests/core/forked.h"
#include "tests/core/message_fixture.h"

namespace gristmill {
namespace {

using namespace std::chrono_literals;
using Outcome = MessageQueue::Outcome;

constexpr std::uint64_t kRing = 60'000;
constexpr std::size_t kMuch = 50'000;
constexpr std::uint64_t kMuchTag = 1 << 20;

void fill(MessageQueue& queue) {
  while (put_tag(queue, 3) == Outcome::kOk) {
  }
}

Outcome put_much(MessageQueue& queue, Deadline deadline) {
  return queue.put(message_of(kMuchTag, kMuch), deadline).outcome;
}

// Small puts from three threads keep the queue full, while one consumer takes one message at a time.
template <class Put>
void against_puts_of_little(const Put& put) {
  const auto queue = fresh_message_queue(kRing);
  fill(*queue);
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      while (!done) put_tag(*queue, 3, Deadline::in(100ms));
    });
  }
  threads.emplace_back([&] {
    while (!done) {
      get_tags(*queue, 5, Deadline::in(10ms));
      ::usleep(200);  // slower than the producers
    }
  });
  put(*queue);
  done = true;
  for (std::thread& thread : threads) thread.join();
}

TEST(MessageQueueTurn, APutOfMuchIsNotOvertakenForEverByPutsOfLittle) {
  against_puts_of_little([](MessageQueue& queue) {
    for (int i = 0; i < 3; ++i) EXPECT_EQ(put_much(queue, Deadline::in(60s)), Outcome::kOk);
  });
}

TEST(MessageQueueTurn, NorIsAReservationNorAPutManyNorOneThatWaitsByManyCalls) {
  against_puts_of_little([](MessageQueue& queue) {
    auto reserved = queue.reserve(kMuch, Deadline::in(60s));
    EXPECT_EQ(reserved.outcome, Outcome::kOk);
    reserved.reservation.abandon();
    const std::vector<MessageBytes> messages(3, message_of(1, kMuch));
    const std::vector<std::span<const std::byte>> spans(messages.begin(), messages.end());
    EXPECT_EQ(queue.put_many(spans, Deadline::in(60s)).put, 3);
    MessageTurn turn = queue.turn();
    const Deadline deadline = Deadline::in(60s);
    const MessageBytes much = message_of(kMuchTag, kMuch);
    Outcome outcome = Outcome::kTimedOut;
    while (outcome == Outcome::kTimedOut && !deadline.passed()) {
      outcome = queue.put(much, Deadline::in(20ms), &turn).outcome;
    }
    EXPECT_EQ(outcome, Outcome::kOk);
  });
}

TEST(MessageQueueTurn, OneThatTimesOutGivesItsTurnBack) {
  const auto queue = fresh_message_queue(kRing);
  fill(*queue);
  EXPECT_EQ(put_much(*queue, Deadline::in(150ms)), Outcome::kTimedOut);
  ASSERT_EQ(get_tags(*queue, 10).size(), 10u);
  EXPECT_EQ(put_tag(*queue, 3, Deadline::now()), Outcome::kOk);
}

TEST(MessageQueueTurn, AConsumerThatKeepsMessagesAndWaitsForMoreGetsThem) {
  const auto queue = fresh_message_queue(kRing);
  fill(*queue);
  ASSERT_EQ(get_tags(*queue, 200).size(), 200u);
  const auto kept = queue->take(10'000, MessageQueue::kNoLimit, Deadline::now());
  ASSERT_EQ(kept.outcome, Outcome::kOk);
  std::thread much([&] { put_much(*queue, Deadline::in(4s)); });
  std::thread little([&] {
    for (int i = 0; i < 50; ++i) EXPECT_EQ(put_tag(*queue, 3, Deadline::in(60s)), Outcome::kOk);
  });
  for (std::size_t got = 0; got < 50;) {
    const auto tags = get_tags(*queue, 1, Deadline::in(60s));
    ASSERT_EQ(tags.size(), 1u);
    got += tags[0] == 3 ? 1 : 0;
  }
  little.join();
  much.join();
}

#ifdef GRISTMILL_FAULT_POINTS

int put_much_armed(MessageQueue& queue, const char* point, fault::Action action) {
  fault::arm(point, action);
  return put_much(queue, Deadline::in(60s)) == Outcome::kOk ? 0 : 1;
}

TEST(MessageQueueTurn, OneKilledInItsTurnLeavesItToTheOthers) {
  for (const char* point : {"message.turn.taken", "message.wait.prepared"}) {
    const auto queue = fresh_message_queue(kRing);
    fill(*queue);
    Forked dead([&] { return put_much_armed(*queue, point, fault::Action::kKill); });
    ASSERT_TRUE(dead.dies_of(SIGKILL)) << point;
    ASSERT_EQ(get_tags(*queue, 10).size(), 10u);
    EXPECT_EQ(put_tag(*queue, 3, Deadline::in(60s)), Outcome::kOk) << point;
    EXPECT_EQ(put_tag(*queue, 3, Deadline::now()), Outcome::kOk) << point;
  }
}

TEST(MessageQueueTurn, OneStoppedInItsTurnDoesNotKeepTheOthersOutAndTakesItAgain) {
  const auto queue = fresh_message_queue(kRing);
  fill(*queue);
  Forked stopped([&] { return put_much_armed(*queue, "message.turn.taken", fault::Action::kStop); });
  ASSERT_TRUE(stopped.wait_stopped());
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(get_tags(*queue, 1).size(), 1u);
    ASSERT_EQ(put_tag(*queue, 3, Deadline::in(60s)), Outcome::kOk);
  }
  stopped.signal(SIGCONT);
  std::atomic<bool> done{false};
  std::thread little([&] {
    while (!done) put_tag(*queue, 3, Deadline::in(10ms));
  });
  bool came = false;
  const Deadline deadline = Deadline::in(60s);
  while (!came && !deadline.passed()) {
    for (const std::uint64_t tag : get_tags(*queue, 1, Deadline::in(10ms))) came = came || tag == kMuchTag;
  }
  done = true;
  little.join();
  EXPECT_TRUE(came);
  EXPECT_TRUE(stopped.succeeds());
}

TEST(MessageQueueTurn, OneKilledWhileItGivesItsTurnBackHasPutItsMessage) {
  const auto queue = fresh_message_queue(kRing);
  fill(*queue);
  const std::uint64_t waits = queue->statistics().put_waits;
  Forked dead([&] { return put_much_armed(*queue, "message.turn.given_back", fault::Action::kKill); });
  ASSERT_TRUE(eventually([&] { return queue->statistics().put_waits > waits; }));
  ::usleep(100'000);  // most likely it has the turn by then; if it never takes it, the child ends unharmed
  get_tags(*queue);
  const bool killed = dead.dies_of(SIGKILL);
  EXPECT_EQ(put_tag(*queue, 3, Deadline::in(60s)), Outcome::kOk);
  queue->recover();
  const MessageTags tags = get_tags(*queue, 10, Deadline::in(60s));
  ASSERT_FALSE(tags.empty());
  EXPECT_TRUE(killed || tags.front() == kMuchTag);
  EXPECT_EQ(tags.back(), 3u);
  EXPECT_EQ(queue->bytes_used(), 0u);
}

#endif

}  // namespace
}  // namespace gristmill
