#include "core/trajectory_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <numeric>
#include <stdexcept>
#include <thread>
#include <utility>

#include "tests/core/forked.h"
#include "tests/core/trajectory_fixture.h"

namespace gristmill {
namespace {

using namespace std::chrono_literals;
using Outcome = TrajectoryQueue::Outcome;
using Tags = std::vector<std::uint64_t>;

TEST(TrajectoryQueue, WhatIsPutIsGotInOrderAndWhole) {
  const auto queue = fresh_queue(8);
  EXPECT_EQ(Grist(10, 5).put(*queue, Deadline::now()).put, 5);
  EXPECT_EQ(queue->size(), 5);
  EXPECT_EQ(get_tags(*queue, 2), (Tags{10, 11}));
  EXPECT_EQ(get_tags(*queue, 3), (Tags{12, 13, 14}));
  EXPECT_EQ(queue->size(), 0);
}

TEST(TrajectoryQueue, SaysWhatItHolds) {
  const auto queue = fresh_queue(8);
  const auto other = TrajectoryQueue::attach(queue->name(), Deadline::now());
  EXPECT_EQ(other->spec(), Grist::spec());
  EXPECT_EQ(other->capacity(), 8);
  EXPECT_EQ(other->name(), queue->name());
}

TEST(TrajectoryQueue, ABatchIsOneContiguousArrayPerFieldAcrossTheRingsEnd) {
  // Capacities and batches that meet every ring's end, wherever it is, mirrored or not.
  for (const std::int64_t capacity : {1, 3, 7, 64}) {
    const FieldSpecs spec{{"page", DType::kUInt8, {4096}},
                          {"small", DType::kInt32, {3}},
                          {"huge_odd", DType::kUInt8, {100'003}}};
    const auto queue = fresh_queue(capacity, spec);
    std::uint8_t next = 0;
    std::uint8_t expected = 0;
    for (int round = 0; round < 200; ++round) {
      const std::int64_t n = 1 + round % capacity;
      const auto count = static_cast<std::size_t>(n);
      std::vector<std::uint8_t> page(count * 4096), odd(count * 100'003);
      std::vector<std::int32_t> small(count * 3);
      for (std::size_t i = 0; i < count; ++i, ++next) {
        std::fill_n(page.begin() + static_cast<std::ptrdiff_t>(i * 4096), 4096, next);
        std::fill_n(odd.begin() + static_cast<std::ptrdiff_t>(i * 100'003), 100'003, next);
        std::fill_n(small.begin() + static_cast<std::ptrdiff_t>(i * 3), 3, next);
      }
      const std::array<const std::byte*, 3> fields{reinterpret_cast<const std::byte*>(page.data()),
                                                   reinterpret_cast<const std::byte*>(small.data()),
                                                   reinterpret_cast<const std::byte*>(odd.data())};
      ASSERT_EQ(queue->put_many(fields, n, Deadline::now()).outcome, Outcome::kOk);
      auto got = queue->get_many(n, Deadline::now());
      ASSERT_EQ(got.outcome, Outcome::kOk);
      EXPECT_EQ(std::memcmp(got.batch.field(0), page.data(), page.size()), 0);
      EXPECT_EQ(std::memcmp(got.batch.field(1), small.data(), small.size() * 4), 0);
      EXPECT_EQ(std::memcmp(got.batch.field(2), odd.data(), odd.size()), 0);
      expected = static_cast<std::uint8_t>(expected + n);
    }
    EXPECT_EQ(next, expected);
  }
}

TEST(TrajectoryQueue, PlacesAreFreeOnlyWhenTheirBatchIsReleased) {
  const auto queue = fresh_queue(2);
  ASSERT_TRUE(put_each(*queue, 0, 2));
  auto got = queue->get_many(2, Deadline::now());
  ASSERT_EQ(got.outcome, Outcome::kOk);
  EXPECT_EQ(Grist(2, 1).put(*queue, Deadline::now()).outcome, Outcome::kTimedOut);
  EXPECT_EQ(Grist::tags(got.batch), (Tags{0, 1}));
  got.batch.release();
  EXPECT_EQ(Grist(2, 1).put(*queue, Deadline::now()).outcome, Outcome::kOk);
}

TEST(TrajectoryQueue, BatchesMayBeReleasedInAnyOrderAndFreeInFifoOrder) {
  const auto queue = fresh_queue(6);
  ASSERT_TRUE(put_each(*queue, 0, 6));
  auto first = queue->get_many(2, Deadline::now());
  auto second = queue->get_many(1, Deadline::now());
  auto third = queue->get_many(3, Deadline::now());
  third.batch.release();
  EXPECT_EQ(queue->size(), 6);
  first.batch.release();
  EXPECT_EQ(queue->size(), 4);
  EXPECT_EQ(Grist::tags(second.batch), (Tags{2}));
  second.batch.release();
  EXPECT_EQ(queue->size(), 0);
  ASSERT_TRUE(put_each(*queue, 6, 6));
  EXPECT_EQ(get_tags(*queue, 6), (Tags{6, 7, 8, 9, 10, 11}));
}

TEST(TrajectoryQueue, ABatchReleasesWhenItIsDestroyedOrAssignedOverAndOnlyOnce) {
  const auto queue = fresh_queue(4);
  ASSERT_TRUE(put_each(*queue, 0, 4));
  {
    TrajectoryQueue::Batch kept;
    {
      auto got = queue->get_many(1, Deadline::now());
      kept = std::move(got.batch);
    }
    EXPECT_EQ(queue->size(), 4);
    kept = queue->get_many(1, Deadline::now()).batch;
    EXPECT_EQ(queue->size(), 3);
    kept.release();
    kept.release();
    EXPECT_EQ(queue->size(), 2);
    EXPECT_THROW(kept.field(0), std::logic_error);
  }
  EXPECT_EQ(queue->size(), 2);
}

TEST(TrajectoryQueue, AFullQueueTakesNothingUntilTheDeadlineAndCountsTheWait) {
  const auto queue = fresh_queue(3);
  ASSERT_TRUE(put_each(*queue, 0, 3));
  const auto result = Grist(3, 1).put(*queue, Deadline::in(80ms));
  EXPECT_EQ(result.outcome, Outcome::kTimedOut);
  EXPECT_EQ(result.put, 0);
  EXPECT_GT(result.waited, 0ns);
  EXPECT_EQ(queue->statistics().put_waits, 1u);
  EXPECT_EQ(get_tags(*queue, 3), (Tags{0, 1, 2}));
}

TEST(TrajectoryQueue, TooFewAreNotHandedOut) {
  const auto queue = fresh_queue(3);
  ASSERT_TRUE(put_each(*queue, 0, 2));
  EXPECT_EQ(queue->get_many(3, Deadline::in(80ms)).outcome, Outcome::kTimedOut);
  EXPECT_EQ(queue->statistics().get_waits, 1u);
  EXPECT_EQ(get_tags(*queue, 2), (Tags{0, 1}));
}

TEST(TrajectoryQueue, MoreThanTheCapacityGoesInByParts) {
  const auto queue = fresh_queue(4);
  Tags got;
  std::thread consumer([&] {
    while (got.size() < 30) {
      for (const std::uint64_t tag : get_tags(*queue, 3, Deadline::in(20s))) got.push_back(tag);
    }
  });
  const auto result = Grist(100, 30).put(*queue, Deadline::in(20s));
  consumer.join();
  EXPECT_EQ(result.outcome, Outcome::kOk);
  EXPECT_EQ(result.put, 30);
  Tags expected(30);
  std::iota(expected.begin(), expected.end(), 100);
  EXPECT_EQ(got, expected);
}

TEST(TrajectoryQueue, APutThatTimesOutSaysHowManyWentIn) {
  const auto queue = fresh_queue(4);
  const auto result = Grist(0, 6).put(*queue, Deadline::in(10ms));
  EXPECT_EQ(result.outcome, Outcome::kTimedOut);
  EXPECT_EQ(result.put, 4);
  EXPECT_EQ(get_tags(*queue, 4), (Tags{0, 1, 2, 3}));
}

TEST(TrajectoryQueue, BadArgumentsAreRefusedByName) {
  const auto queue = fresh_queue(4);
  const Grist grist(0, 1);
  auto fields = grist.fields();
  EXPECT_THAT([&] { queue->get_many(5, Deadline::now()); },
              testing::ThrowsMessage<std::invalid_argument>(
                  testing::AllOf(testing::HasSubstr("get_many of 5"), testing::HasSubstr("capacity of 4"))));
  EXPECT_THROW(queue->get_many(0, Deadline::now()), std::invalid_argument);
  EXPECT_THROW(queue->put_many(std::span(fields).first(2), 1, Deadline::now()), std::invalid_argument);
  EXPECT_THROW(queue->put_many(fields, -1, Deadline::now()), std::invalid_argument);
  fields[2] = nullptr;
  EXPECT_THAT([&] { queue->put_many(fields, 1, Deadline::now()); },
              testing::ThrowsMessage<std::invalid_argument>(testing::HasSubstr("'odd'")));
  EXPECT_EQ(queue->put_many(grist.fields(), 0, Deadline::now()).outcome, Outcome::kOk);
  EXPECT_EQ(queue->size(), 0);
}

TEST(TrajectoryQueue, AQueueThatDoesNotFitSaysBytesNeededAndAvailable) {
  const FieldSpecs spec{{"a", DType::kFloat32, {1 << 20}}};
  const auto capacity = static_cast<std::int64_t>(shared_memory_available() / (4 << 20) + 100);
  try {
    fresh_queue(capacity, spec);
    ADD_FAILURE() << "it fitted";
  } catch (const SegmentError& error) {
    EXPECT_EQ(error.reason(), SegmentError::Reason::kNoSpace);
    EXPECT_THAT(error.what(),
                testing::HasSubstr(std::to_string(TrajectoryQueue::bytes_needed(spec, capacity))));
  }
}

TEST(TrajectoryQueue, AfterCloseWhatIsLeftCanBeTakenAndNothingIsPut) {
  const auto queue = fresh_queue(8);
  ASSERT_TRUE(put_each(*queue, 0, 5));
  EXPECT_FALSE(queue->closed());
  queue->close();
  EXPECT_TRUE(queue->closed());
  EXPECT_EQ(Grist(9, 1).put(*queue, Deadline::never()).outcome, Outcome::kClosed);
  EXPECT_EQ(get_tags(*queue, 3), (Tags{0, 1, 2}));
  EXPECT_EQ(get_tags(*queue, 3), (Tags{3, 4}));
  EXPECT_EQ(queue->get_many(3, Deadline::never()).outcome, Outcome::kClosed);
}

TEST(TrajectoryQueue, CloseWakesWaitingProducersAndTheConsumer) {
  const auto full = fresh_queue(1);
  ASSERT_TRUE(put_each(*full, 0, 1));
  const auto empty = fresh_queue(1);
  Forked producer(
      [&] { return Grist(1, 1).put(*full, Deadline::never()).outcome == Outcome::kClosed ? 0 : 1; });
  Forked consumer([&] { return empty->get_many(1, Deadline::never()).outcome == Outcome::kClosed ? 0 : 1; });
  ASSERT_TRUE(
      eventually([&] { return full->statistics().put_waits > 0 && empty->statistics().get_waits > 0; }));
  full->close();
  empty->close();
  EXPECT_TRUE(producer.succeeds());
  EXPECT_TRUE(consumer.succeeds());
}

TEST(TrajectoryQueue, AWaiterThatIsKilledAsleepHarmsNobody) {
  const auto queue = fresh_queue(2);
  ASSERT_TRUE(put_each(*queue, 0, 2));
  {
    Forked producer([&] { return Grist(9, 1).put(*queue, Deadline::never()).put == 1 ? 0 : 1; });
    ASSERT_TRUE(eventually([&] { return queue->statistics().put_waits > 0; }));
  }
  EXPECT_EQ(get_tags(*queue, 2), (Tags{0, 1}));
  ASSERT_TRUE(put_each(*queue, 2, 2));
  EXPECT_EQ(get_tags(*queue, 2), (Tags{2, 3}));
}

TEST(TrajectoryQueue, ProducersInOtherProcessesWaitForSpaceAndGoOn) {
  const auto queue = fresh_queue(3);
  constexpr std::uint64_t kEach = 200;
  std::vector<Forked> producers;
  for (std::uint64_t p = 0; p < 3; ++p) {
    producers.emplace_back([&, p] {
      const auto mine = TrajectoryQueue::attach(queue->name(), Deadline::in(10s));
      for (std::uint64_t i = 0; i < kEach; ++i) {
        if (Grist(p << 32 | i, 1).put(*mine, Deadline::in(20s)).outcome != Outcome::kOk) return 1;
      }
      return 0;
    });
  }
  std::array<std::uint64_t, 3> next{};
  for (std::uint64_t i = 0; i < 3 * kEach; i += 2) {
    const Tags tags = get_tags(*queue, 2, Deadline::in(20s));
    ASSERT_EQ(tags.size(), 2u);
    for (const std::uint64_t tag : tags)
      ASSERT_EQ(tag & 0xFFFFFFFF, next[tag >> 32]++) << "each in its order";
  }
  for (Forked& producer : producers) EXPECT_TRUE(producer.succeeds());
  EXPECT_EQ(queue->size(), 0);
  EXPECT_EQ(queue->statistics().puts, 3 * kEach);
  EXPECT_EQ(queue->statistics().gets, 3 * kEach);
}

TEST(TrajectoryQueue, ASecondLivingConsumerIsRefused) {
  const auto queue = fresh_queue(4);
  ASSERT_TRUE(put_each(*queue, 0, 4));
  EXPECT_EQ(get_tags(*queue, 1), (Tags{0}));
  Forked other([&] {
    try {
      queue->get_many(1, Deadline::now());
    } catch (const std::logic_error&) {
      return 0;
    }
    return 1;
  });
  EXPECT_TRUE(other.succeeds());
  const auto second = TrajectoryQueue::attach(queue->name(), Deadline::now());
  EXPECT_THROW(second->get_many(1, Deadline::now()), std::logic_error);
  EXPECT_EQ(get_tags(*queue, 1), (Tags{1}));
}

TEST(TrajectoryQueue, AnObjectThatEndsLetsAnotherConsume) {
  const auto queue = fresh_queue(4);
  ASSERT_TRUE(put_each(*queue, 0, 4));
  {
    const auto first = TrajectoryQueue::attach(queue->name(), Deadline::now());
    EXPECT_EQ(get_tags(*first, 1), (Tags{0}));
  }
  EXPECT_EQ(get_tags(*queue, 1), (Tags{1}));
}

TEST(TrajectoryQueue, AKilledConsumersBatchGoesToTheNext) {
  const auto queue = fresh_queue(4);
  ASSERT_TRUE(put_each(*queue, 0, 4));
  Forked consumer([&] {
    if (get_tags(*queue, 1) != Tags{0}) return 1;
    const auto kept = queue->get_many(2, Deadline::now());
    if (kept.outcome == Outcome::kOk) ::raise(SIGKILL);
    return 2;
  });
  ASSERT_TRUE(consumer.dies_of(SIGKILL));
  EXPECT_EQ(get_tags(*queue, 3), (Tags{1, 2, 3}));
}

TEST(TrajectoryQueue, AForkedChildOfTheConsumerReleasesNothing) {
  const auto queue = fresh_queue(2);
  ASSERT_TRUE(put_each(*queue, 0, 2));
  auto got = queue->get_many(2, Deadline::now());
  Forked child([&] {
    got.batch.release();
    return queue->size() == 2 ? 0 : 1;
  });
  EXPECT_TRUE(child.succeeds());
  EXPECT_EQ(queue->size(), 2);
}

TEST(TrajectoryQueue, AForkedChildOfAProducerPutsUnderItsOwnName) {
  const auto queue = fresh_queue(4);
  ASSERT_TRUE(put_each(*queue, 0, 1));
  Forked child([&] { return put_each(*queue, 1, 1) ? 0 : 1; });
  EXPECT_TRUE(child.succeeds());
  EXPECT_EQ(get_tags(*queue, 2), (Tags{0, 1}));
}

TEST(TrajectoryQueue, TheNameCanBeRemovedEarly) {
  const auto queue = fresh_queue(2);
  queue->unlink();
  EXPECT_THROW(TrajectoryQueue::attach(queue->name(), Deadline::now()), SegmentError);
  ASSERT_TRUE(put_each(*queue, 0, 2));
  EXPECT_EQ(get_tags(*queue, 2), (Tags{0, 1}));
}

TEST(TrajectoryQueue, BytesNeededIsWhatCreateTakes) {
  const auto queue = fresh_queue(5);
  for (const SegmentInfo& segment : list_segments()) {
    if (segment.name == queue->name()) {
      EXPECT_EQ(segment.bytes, TrajectoryQueue::bytes_needed(Grist::spec(), 5));
    }
  }
}

}  // namespace
}  // namespace gristmill
