// Messages written and read in place: reservations, taken batches, and what becomes of them.

#include <gtest/gtest.h>

#include <cstring>

#include "tests/core/forked.h"
#include "tests/core/message_fixture.h"

namespace gristmill {
namespace {

using namespace std::chrono_literals;
using Outcome = MessageQueue::Outcome;

void fill(const MessageQueue::Reservation& reservation, std::uint64_t tag, std::size_t length) {
  const MessageBytes message = message_of(tag, length);
  std::memcpy(reservation.bytes().data(), message.data(), length);
}

TEST(MessageQueuePlace, AReservationIsDeliveredWhenItIsCommitted) {
  const auto queue = fresh_message_queue();
  for (const std::size_t length : {20u, 5000u}) {
    auto reserved = queue->reserve(length, Deadline::now());
    ASSERT_EQ(reserved.outcome, Outcome::kOk);
    ASSERT_EQ(reserved.reservation.bytes().size(), length);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(reserved.reservation.bytes().data()) % 64, 0u);
    fill(reserved.reservation, 3, length);
    EXPECT_EQ(get_tags(*queue), MessageTags{});
    reserved.reservation.commit();
    EXPECT_EQ(get_tags(*queue), MessageTags{3});
    EXPECT_EQ(queue->bytes_used(), 0u);
    EXPECT_THROW(reserved.reservation.commit(), std::logic_error);
  }
}

TEST(MessageQueuePlace, AReservationMayBeCommittedShorter) {
  const auto queue = fresh_message_queue(1 << 14);
  for (std::uint64_t i = 0; i < 200; ++i) {
    auto reserved = queue->reserve(6000, Deadline::now());
    ASSERT_EQ(reserved.outcome, Outcome::kOk);
    const std::size_t length = 8 + i * 30 % 5993;
    fill(reserved.reservation, i, length);
    EXPECT_THROW(reserved.reservation.commit(6001), std::invalid_argument);
    if (i % 2 == 0) {
      EXPECT_EQ(get_tags(*queue), MessageTags{});  // passed over: it will be late
    }
    reserved.reservation.commit(length);
    ASSERT_EQ(put_tag(*queue, 1000), Outcome::kOk);
    ASSERT_EQ(get_tags(*queue), (MessageTags{i, 1000}));
    ASSERT_EQ(queue->bytes_used(), 0u);
  }
}

TEST(MessageQueuePlace, AnAbandonedReservationIsPassedOverAndCounted) {
  const auto queue = fresh_message_queue(1 << 14, 2);
  {
    auto first = queue->reserve(100, Deadline::now());
    auto second = queue->reserve(5000, Deadline::now());
    ASSERT_EQ(put_tag(*queue, 0), Outcome::kTimedOut);
    auto moved = std::move(first.reservation);
    EXPECT_FALSE(first.reservation);
    EXPECT_TRUE(moved);
  }
  EXPECT_EQ(queue->statistics().skipped, 2u);
  EXPECT_EQ(queue->bytes_used(), 0u);
  EXPECT_EQ(queue->size(), 0);
  ASSERT_EQ(put_tag(*queue, 0), Outcome::kOk);
  ASSERT_EQ(put_tag(*queue, 1), Outcome::kOk);
  EXPECT_EQ(get_tags(*queue), tags_between(0, 2));
  EXPECT_EQ(queue->statistics().gets, 2u);
  EXPECT_EQ(queue->statistics().puts, 2u);
}

TEST(MessageQueuePlace, WhoIsSlowToCommitHoldsNobodyUpAndLosesNothing) {
  const auto queue = fresh_message_queue(1 << 15);
  auto slow = queue->reserve(5000, Deadline::now());
  for (std::uint64_t tag = 0; tag < 3; ++tag) ASSERT_EQ(put_tag(*queue, tag), Outcome::kOk);
  EXPECT_EQ(get_tags(*queue), tags_between(0, 3));
  EXPECT_EQ(queue->size(), 1);
  EXPECT_GT(queue->bytes_used(), 5000u);
  fill(slow.reservation, 50, 5000);
  slow.reservation.commit();
  // Committed before the next is put: delivered before it.
  ASSERT_EQ(put_tag(*queue, 3), Outcome::kOk);
  EXPECT_EQ(get_tags(*queue), (MessageTags{50, 3}));
  EXPECT_EQ(queue->bytes_used(), 0u);
  EXPECT_EQ(queue->size(), 0);
}

TEST(MessageQueuePlace, ALateMessageIsTakenInPlaceToo) {
  const auto queue = fresh_message_queue(1 << 15);
  auto slow = queue->reserve(5000, Deadline::now());
  ASSERT_EQ(put_tag(*queue, 0), Outcome::kOk);
  ASSERT_EQ(get_tags(*queue), MessageTags{0});
  fill(slow.reservation, 50, 5000);
  slow.reservation.commit();
  ASSERT_EQ(put_tag(*queue, 1), Outcome::kOk);
  const auto taken = queue->take(10, MessageQueue::kNoLimit, Deadline::now());
  EXPECT_EQ(tags_of(taken.batch), (MessageTags{50, 1}));
}

// Found by the fault campaign: its producer's next message overtook it.
TEST(MessageQueuePlace, ALateMessageThatDoesNotFitTheBatchIsNotOvertaken) {
  const auto queue = fresh_message_queue();
  auto first = queue->reserve(3000, Deadline::now());
  auto second = queue->reserve(3000, Deadline::now());
  ASSERT_EQ(get_tags(*queue), MessageTags{});  // passes both over
  for (auto* late : {&first, &second}) {
    const MessageBytes message = message_of(late == &first ? 1 : 2, 3000);
    std::memcpy(late->reservation.bytes().data(), message.data(), message.size());
    late->reservation.commit();
  }
  ASSERT_EQ(put_tag(*queue, 3), Outcome::kOk);
  const auto fits_one = queue->take(8, 3100, Deadline::now());
  EXPECT_EQ(tags_of(fits_one.batch), MessageTags{1});
  const auto rest = queue->take(8, MessageQueue::kNoLimit, Deadline::now());
  EXPECT_EQ(tags_of(rest.batch), (MessageTags{2, 3}));
}

TEST(MessageQueuePlace, AClosedQueueIsDrainedOnlyWhenReservationsAreSettled) {
  const auto queue = fresh_message_queue();
  auto reserved = queue->reserve(100, Deadline::now());
  queue->close();
  MessageBuffer buffer;
  EXPECT_EQ(queue->get(buffer, Deadline::in(20ms)), Outcome::kTimedOut);
  fill(reserved.reservation, 8, 100);
  reserved.reservation.commit();
  EXPECT_EQ(get_tags(*queue), MessageTags{8});
  EXPECT_EQ(queue->get(buffer, Deadline::now()), Outcome::kClosed);
}

TEST(MessageQueuePlace, TakenMessagesStayUntilReleased) {
  const auto queue = fresh_message_queue(20'000);
  for (std::uint64_t tag = 0; tag < 6; ++tag) ASSERT_EQ(put_tag(*queue, tag), Outcome::kOk);
  auto first = queue->take(3, MessageQueue::kNoLimit, Deadline::now());
  auto second = queue->take(1, MessageQueue::kNoLimit, Deadline::now());
  ASSERT_EQ(first.outcome, Outcome::kOk);
  EXPECT_EQ(queue->size(), 2);
  // Others copy past them; nothing overwrites them.
  EXPECT_EQ(get_tags(*queue), tags_between(4, 6));
  std::uint64_t put = 6;
  while (put_tag(*queue, put) == Outcome::kOk) ++put;
  EXPECT_EQ(tags_of(first.batch), tags_between(0, 3));
  EXPECT_EQ(tags_of(second.batch), MessageTags{3});
  const auto holders = queue->holders();
  ASSERT_EQ(holders.size(), 1u);
  EXPECT_EQ(holders[0].pid, ::getpid());
  EXPECT_EQ(holders[0].taken, 4u);
  EXPECT_EQ(holders[0].reserved, 0u);
  // Released in the wrong order: space is free when the oldest is.
  const std::uint64_t before = queue->bytes_used();
  second.batch.release();
  EXPECT_EQ(queue->bytes_used(), before);
  first.batch.release();
  EXPECT_LT(queue->bytes_used(), before);
  EXPECT_TRUE(queue->holders().empty());
  EXPECT_EQ(get_tags(*queue), tags_between(6, put));
  EXPECT_EQ(queue->bytes_used(), 0u);
}

TEST(MessageQueuePlace, AReleaseWakesAPutThatWaits) {
  const auto queue = fresh_message_queue(8000);
  ASSERT_EQ(put_tag(*queue, 6), Outcome::kTooLarge);
  ASSERT_EQ(put_tag(*queue, 5), Outcome::kOk);
  auto taken = queue->take(1, MessageQueue::kNoLimit, Deadline::now());
  Forked putter([&] { return put_tag(*queue, 12, Deadline::in(60s)) == Outcome::kOk ? 0 : 1; });
  ASSERT_TRUE(eventually([&] { return queue->statistics().put_waits == 1; }));
  taken.batch.release();
  EXPECT_TRUE(putter.succeeds());
  EXPECT_EQ(get_tags(*queue), MessageTags{12});
}

TEST(MessageQueuePlace, AForkedChildsCopiesOfReservationsAndBatchesDoNothing) {
  const auto queue = fresh_message_queue();
  ASSERT_EQ(put_tag(*queue, 1), Outcome::kOk);
  auto taken = queue->take(1, MessageQueue::kNoLimit, Deadline::now());
  auto reserved = queue->reserve(100, Deadline::now());
  Forked child([&] {
    taken.batch.release();
    reserved.reservation.abandon();
    return put_tag(*queue, 2) == Outcome::kOk ? 0 : 1;
  });
  ASSERT_TRUE(child.succeeds());
  EXPECT_EQ(tags_of(taken.batch), MessageTags{1});
  EXPECT_EQ(queue->holders().size(), 1u);
  fill(reserved.reservation, 7, 100);
  reserved.reservation.commit();
  EXPECT_EQ(queue->statistics().skipped, 0u);
  const MessageTags got = get_tags(*queue);
  EXPECT_EQ(got, (MessageTags{7, 2}));
}

}  // namespace
}  // namespace gristmill
