#include "core/message_queue.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/core/forked.h"
#include "tests/core/message_fixture.h"

namespace gristmill {
namespace {

using namespace std::chrono_literals;
using Outcome = MessageQueue::Outcome;
using Bytes = std::span<const std::byte>;

TEST(MessageQueue, MessagesOfAnySizeComeOutWholeAndInOrder) {
  const auto queue = fresh_message_queue();
  for (std::uint64_t tag = 0; tag < 14; ++tag) ASSERT_EQ(put_tag(*queue, tag), Outcome::kOk);
  EXPECT_EQ(queue->size(), 14);
  EXPECT_EQ(get_tags(*queue), tags_between(0, 14));
  EXPECT_EQ(queue->size(), 0);
  EXPECT_EQ(queue->bytes_used(), 0u);
}

TEST(MessageQueue, AMessageOfNoBytesIsAMessage) {
  const auto queue = fresh_message_queue();
  ASSERT_EQ(queue->put({}, Deadline::now()).outcome, Outcome::kOk);
  MessageBuffer buffer;
  ASSERT_EQ(queue->get(buffer, Deadline::now()), Outcome::kOk);
  ASSERT_EQ(buffer.size(), 1u);
  EXPECT_EQ(buffer[0].size(), 0u);
}

TEST(MessageQueue, GoesRoundItsRingManyTimes) {
  const auto queue = fresh_message_queue(12'000);
  std::uint64_t put = 0;
  std::uint64_t got = 0;
  for (int round = 0; round < 3000; ++round) {
    while (put_tag(*queue, put) == Outcome::kOk) ++put;
    for (const std::uint64_t tag : get_tags(*queue, 1 + round % 5)) ASSERT_EQ(tag, got++);
  }
  for (const std::uint64_t tag : get_tags(*queue)) ASSERT_EQ(tag, got++);
  EXPECT_EQ(got, put);
  EXPECT_GT(put, 3000u);
}

TEST(MessageQueue, PutManyPutsInOrderAndPacksTheSame) {
  const auto queue = fresh_message_queue();
  std::vector<MessageBytes> messages;
  MessageBytes packed;
  std::vector<std::uint64_t> ends;
  for (std::uint64_t tag = 0; tag < 10; ++tag) {
    messages.push_back(message_of(tag, length_of(tag)));
    packed.insert(packed.end(), messages.back().begin(), messages.back().end());
    ends.push_back(packed.size());
  }
  const std::vector<Bytes> spans(messages.begin(), messages.end());
  auto put = queue->put_many(spans, Deadline::now());
  EXPECT_EQ(put.outcome, Outcome::kOk);
  EXPECT_EQ(put.put, 10);
  EXPECT_EQ(get_tags(*queue), tags_between(0, 10));
  put = queue->put_packed(packed, ends, Deadline::now());
  EXPECT_EQ(put.put, 10);
  EXPECT_EQ(get_tags(*queue), tags_between(0, 10));
  ends[3] = ends[5];
  EXPECT_THROW(queue->put_packed(packed, ends, Deadline::now()), std::invalid_argument);
}

TEST(MessageQueue, PartsBecomeOneMessage) {
  const auto queue = fresh_message_queue();
  for (const std::size_t length : {100u, 9000u}) {
    const MessageBytes whole = message_of(7, length);
    const Bytes all(whole);
    const Bytes parts[] = {all.first(3), {}, all.subspan(3, 60), all.subspan(63)};
    ASSERT_EQ(queue->put_parts(parts, Deadline::now()).outcome, Outcome::kOk);
    EXPECT_EQ(get_tags(*queue), MessageTags{7});
  }
}

TEST(MessageQueue, APutManyLargerThanTheQueueGoesThroughInParts) {
  const auto queue = fresh_message_queue(20'000);
  constexpr std::uint64_t kCount = 2000;
  std::vector<MessageBytes> messages;
  for (std::uint64_t tag = 0; tag < kCount; ++tag) messages.push_back(message_of(tag, length_of(tag)));
  const std::vector<Bytes> spans(messages.begin(), messages.end());
  std::thread producer([&] {
    const auto put = queue->put_many(spans, Deadline::in(60s));
    EXPECT_EQ(put.outcome, Outcome::kOk);
    EXPECT_EQ(put.put, static_cast<std::int64_t>(kCount));
  });
  MessageTags got;
  while (got.size() < kCount) {
    const MessageTags some = get_tags(*queue, 64, Deadline::in(60s));
    ASSERT_FALSE(some.empty());
    got.insert(got.end(), some.begin(), some.end());
  }
  producer.join();
  EXPECT_EQ(got, tags_between(0, kCount));
}

TEST(MessageQueue, APutManyThatTimesOutSaysHowManyWentIn) {
  const auto queue = fresh_message_queue(4000);
  const MessageBytes message = message_of(1, 100);
  const std::vector<Bytes> spans(1000, message);
  const auto put = queue->put_many(spans, Deadline::in(10ms));
  EXPECT_EQ(put.outcome, Outcome::kTimedOut);
  EXPECT_GT(put.put, 30);
  EXPECT_EQ(put.put, queue->size());
  EXPECT_EQ(static_cast<std::int64_t>(get_tags(*queue).size()), put.put);
}

TEST(MessageQueue, AMessageThatCanNeverFitIsRefusedAtOnceAndNothingOfItsBatchGoesIn) {
  const auto queue = fresh_message_queue(10'000);
  EXPECT_GE(queue->largest_message(), 10'000u);
  const MessageBytes fits = message_of(1, queue->largest_message());
  const MessageBytes over(queue->largest_message() + 1);
  const Bytes both[] = {fits, over};
  const auto put = queue->put_many(both, Deadline::never());
  EXPECT_EQ(put.outcome, Outcome::kTooLarge);
  EXPECT_EQ(put.put, 0);
  EXPECT_EQ(put.too_large, 1);
  EXPECT_EQ(queue->reserve(over.size(), Deadline::never()).outcome, Outcome::kTooLarge);
  EXPECT_EQ(queue->size(), 0);
}

TEST(MessageQueue, TheLargestMessageFitsWhereverTheQueueStands) {
  const auto queue = fresh_message_queue(10'000);
  for (std::uint64_t i = 0; i < 300; ++i) {
    ASSERT_EQ(queue->put(message_of(i, 8 + i % 50), Deadline::now()).outcome, Outcome::kOk);
    ASSERT_EQ(get_tags(*queue), MessageTags{i});
    ASSERT_EQ(queue->put(message_of(i, queue->largest_message()), Deadline::now()).outcome, Outcome::kOk)
        << i;
    ASSERT_EQ(get_tags(*queue), MessageTags{i});
  }
}

TEST(MessageQueue, MaxMessagesBoundsTheirNumber) {
  const auto queue = fresh_message_queue(1 << 16, 3);
  for (std::uint64_t tag = 0; tag < 3; ++tag) ASSERT_EQ(put_tag(*queue, tag), Outcome::kOk);
  EXPECT_EQ(put_tag(*queue, 3), Outcome::kTimedOut);
  EXPECT_EQ(queue->reserve(8, Deadline::now()).outcome, Outcome::kTimedOut);
  EXPECT_EQ(get_tags(*queue, 1), MessageTags{0});
  EXPECT_EQ(put_tag(*queue, 3), Outcome::kOk);
  EXPECT_EQ(put_tag(*queue, 4), Outcome::kTimedOut);
  EXPECT_EQ(get_tags(*queue), tags_between(1, 4));
  EXPECT_EQ(queue->statistics().put_waits, 3u);
}

TEST(MessageQueue, TimeOutsLeaveEverythingAsItWas) {
  const auto queue = fresh_message_queue(1 << 16, 1);
  MessageBuffer buffer;
  const Deadline deadline = Deadline::in(60ms);
  EXPECT_EQ(queue->get(buffer, deadline), Outcome::kTimedOut);
  EXPECT_TRUE(deadline.passed());
  EXPECT_EQ(buffer.size(), 0u);
  ASSERT_EQ(put_tag(*queue, 1), Outcome::kOk);
  const Deadline later = Deadline::in(60ms);
  EXPECT_EQ(put_tag(*queue, 2, later), Outcome::kTimedOut);
  EXPECT_TRUE(later.passed());
  EXPECT_EQ(get_tags(*queue), MessageTags{1});
  EXPECT_EQ(queue->statistics().get_waits, 1u);
}

TEST(MessageQueue, AGetTakesNoMoreThanItsLimits) {
  const auto queue = fresh_message_queue();
  for (std::uint64_t tag = 0; tag < 10; ++tag) {
    ASSERT_EQ(queue->put(message_of(tag, 100), Deadline::now()).outcome, Outcome::kOk);
  }
  MessageBuffer buffer;
  ASSERT_EQ(queue->get_many(3, MessageQueue::kNoLimit, buffer, Deadline::now()), Outcome::kOk);
  EXPECT_EQ(buffer.size(), 3u);
  ASSERT_EQ(queue->get_many(100, 250, buffer, Deadline::now()), Outcome::kOk);
  EXPECT_EQ(buffer.size(), 2u);
  // The first comes whatever its size.
  ASSERT_EQ(queue->get_many(100, 1, buffer, Deadline::now()), Outcome::kOk);
  EXPECT_EQ(buffer.size(), 1u);
  EXPECT_EQ(queue->take(100, 250, Deadline::now()).batch.size(), 2u);
  EXPECT_EQ(queue->size(), 2);
  EXPECT_THROW(queue->get_many(0, 1, buffer, Deadline::now()), std::invalid_argument);
  EXPECT_THROW(queue->take(0, 1, Deadline::now()), std::invalid_argument);
}

TEST(MessageQueue, CopiesAreAlignedAndTheBufferGivesBackWhatItDoesNotNeed) {
  const auto queue = fresh_message_queue(std::size_t{8} << 20);
  const std::size_t large = std::size_t{6} << 20;
  MessageBuffer buffer;
  ASSERT_EQ(queue->put(message_of(1, large), Deadline::now()).outcome, Outcome::kOk);
  ASSERT_EQ(queue->put(message_of(2, 30), Deadline::now()).outcome, Outcome::kOk);
  ASSERT_EQ(queue->put(message_of(3, 1024), Deadline::now()).outcome, Outcome::kOk);
  ASSERT_EQ(queue->get_many(10, MessageQueue::kNoLimit, buffer, Deadline::now()), Outcome::kOk);
  ASSERT_EQ(buffer.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(tag_of(buffer[i]), i + 1);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer[0].data()) % 64, 0u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer[1].data()) % 16, 0u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer[2].data()) % 64, 0u);
  EXPECT_GE(buffer.capacity(), large);
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(put_tag(*queue, 1), Outcome::kOk);
    ASSERT_EQ(queue->get(buffer, Deadline::now()), Outcome::kOk);
  }
  EXPECT_LE(buffer.capacity(), MessageBuffer::kKeepBytes);
}

TEST(MessageQueue, CloseEndsWaitingAndLeavesWhatIsThere) {
  const auto queue = fresh_message_queue(1 << 16, 2);
  std::thread getter([&] {
    MessageBuffer buffer;
    EXPECT_EQ(queue->get(buffer, Deadline::in(60s)), Outcome::kOk);
    EXPECT_EQ(tag_of(buffer[0]), 5u);
  });
  ASSERT_EQ(put_tag(*queue, 5, Deadline::in(60s)), Outcome::kOk);
  getter.join();
  for (std::uint64_t tag = 0; tag < 2; ++tag) ASSERT_EQ(put_tag(*queue, tag), Outcome::kOk);
  std::thread putter([&] { EXPECT_EQ(put_tag(*queue, 9, Deadline::in(60s)), Outcome::kClosed); });
  while (queue->statistics().put_waits == 0) std::this_thread::yield();
  EXPECT_FALSE(queue->closed());
  queue->close();
  putter.join();
  EXPECT_TRUE(queue->closed());
  EXPECT_EQ(put_tag(*queue, 3), Outcome::kClosed);
  EXPECT_EQ(queue->reserve(10, Deadline::now()).outcome, Outcome::kClosed);
  EXPECT_EQ(get_tags(*queue), tags_between(0, 2));
  MessageBuffer buffer;
  EXPECT_EQ(queue->get(buffer, Deadline::never()), Outcome::kClosed);
  EXPECT_EQ(queue->take(1, 1, Deadline::never()).outcome, Outcome::kClosed);
}

TEST(MessageQueue, ACloseWakesAGetThatSleeps) {
  const auto queue = fresh_message_queue();
  Forked getter([&] {
    MessageBuffer buffer;
    return queue->get(buffer, Deadline::in(60s)) == Outcome::kClosed ? 0 : 1;
  });
  ASSERT_TRUE(eventually([&] { return queue->statistics().get_waits == 1; }));
  queue->close();
  EXPECT_TRUE(getter.succeeds());
}

TEST(MessageQueue, APutManyOfEightWakesEightWhoWait) {
  const auto queue = fresh_message_queue();
  std::vector<Forked> getters;
  for (int i = 0; i < 8; ++i) {
    getters.emplace_back([&] {
      MessageBuffer buffer;
      return queue->get(buffer, Deadline::in(60s)) == Outcome::kOk ? 0 : 1;
    });
  }
  ASSERT_TRUE(eventually([&] { return queue->statistics().get_waits == 8; }));
  const MessageBytes message = message_of(1, 22);
  const std::vector<Bytes> spans(8, message);
  ASSERT_EQ(queue->put_many(spans, Deadline::now()).put, 8);
  for (Forked& getter : getters) EXPECT_TRUE(getter.succeeds());
  EXPECT_EQ(queue->size(), 0);
}

TEST(MessageQueue, ASignalEndsAWaitOnlyWhenAskedTo) {
  for (const bool asked : {false, true}) {
    const auto queue = fresh_message_queue();
    Forked getter([&] {
      struct sigaction action {};
      action.sa_handler = [](int) {};
      ::sigaction(SIGUSR1, &action, nullptr);
      queue->return_on_signals(asked);
      MessageBuffer buffer;
      const Outcome outcome = queue->get(buffer, Deadline::in(60s));
      return outcome == (asked ? Outcome::kInterrupted : Outcome::kOk) ? 0 : 1;
    });
    ASSERT_TRUE(eventually([&] { return queue->statistics().get_waits == 1; }));
    for (int i = 0; i < 100; ++i) {
      getter.signal(SIGUSR1);
      ::usleep(300);
    }
    ASSERT_EQ(put_tag(*queue, 1), Outcome::kOk);
    EXPECT_TRUE(getter.succeeds());
  }
}

TEST(MessageQueue, DropOldestMakesRoomAndCountsWhatItDropped) {
  const auto queue = fresh_message_queue(1 << 16, 4, Overflow::kDropOldest);
  for (std::uint64_t tag = 0; tag < 10; ++tag) ASSERT_EQ(put_tag(*queue, tag), Outcome::kOk);
  EXPECT_EQ(queue->size(), 4);
  EXPECT_EQ(queue->statistics().dropped, 6u);
  EXPECT_EQ(get_tags(*queue), tags_between(6, 10));
  EXPECT_EQ(queue->statistics().gets, 4u);
  EXPECT_EQ(queue->statistics().puts, 10u);
}

TEST(MessageQueue, DropOldestByBytesNeverBlocksAndKeepsTheNewest) {
  const auto queue = fresh_message_queue(20'000, 0, Overflow::kDropOldest);
  for (std::uint64_t tag = 0; tag < 1000; ++tag) ASSERT_EQ(put_tag(*queue, tag), Outcome::kOk) << tag;
  const MessageTags got = get_tags(*queue);
  ASSERT_FALSE(got.empty());
  EXPECT_EQ(got, tags_between(1000 - got.size(), 1000));
  EXPECT_EQ(queue->statistics().dropped, 1000 - got.size());
}

TEST(MessageQueue, DropOldestDropsLateMessagesToo) {
  const auto queue = fresh_message_queue(1 << 14, 2, Overflow::kDropOldest);
  auto early = queue->reserve(8, Deadline::now());
  ASSERT_EQ(early.outcome, Outcome::kOk);
  for (std::uint64_t tag = 0; tag < 20; tag += 7) ASSERT_EQ(put_tag(*queue, tag), Outcome::kOk);
  const MessageBytes message = message_of(99, 8);
  std::memcpy(early.reservation.bytes().data(), message.data(), 8);
  early.reservation.commit();
  for (std::uint64_t tag = 21; tag < 70; tag += 7) ASSERT_EQ(put_tag(*queue, tag), Outcome::kOk) << tag;
  EXPECT_EQ(get_tags(*queue), (MessageTags{56, 63}));
}

TEST(MessageQueue, LatestKeepsOnlyTheNewest) {
  const auto queue = fresh_message_queue(20'000, 0, Overflow::kLatest);
  for (std::uint64_t tag = 0; tag < 30; ++tag) {
    ASSERT_EQ(put_tag(*queue, tag), Outcome::kOk);
    EXPECT_EQ(queue->size(), 1);
  }
  EXPECT_EQ(get_tags(*queue), MessageTags{29});
  EXPECT_EQ(queue->statistics().dropped, 29u);
}

TEST(MessageQueue, AttachedByNameItIsTheSameQueue) {
  const auto queue = fresh_message_queue(5000, 77, Overflow::kDropOldest);
  const auto other = MessageQueue::attach(queue->name(), Deadline::in(10s));
  EXPECT_EQ(other->options().max_size_bytes, 5000u);
  EXPECT_EQ(other->options().max_messages, 77u);
  EXPECT_EQ(other->options().overflow, Overflow::kDropOldest);
  EXPECT_EQ(other->capacity_bytes(), queue->capacity_bytes());
  ASSERT_EQ(put_tag(*other, 4), Outcome::kOk);
  EXPECT_EQ(get_tags(*queue), MessageTags{4});
}

TEST(MessageQueue, OptionsOutOfRangeAreRefused) {
  MessageQueueOptions options;
  options.max_size_bytes = 0;
  EXPECT_THROW(fresh_message_queue(options), std::invalid_argument);
  options.max_size_bytes = std::uint64_t{1} << 40;
  EXPECT_THROW(MessageQueue::bytes_needed(options), std::invalid_argument);
  options.max_size_bytes = 1;
  options.overflow = static_cast<Overflow>(3);
  EXPECT_THROW(fresh_message_queue(options), std::invalid_argument);
}

TEST(MessageQueue, ALargeQueueTakesNoResidentMemoryOfItsCreator) {
  const auto resident = [] {
    std::FILE* file = std::fopen("/proc/self/statm", "r");
    long total = 0;
    long pages = 0;
    const int read = std::fscanf(file, "%ld %ld", &total, &pages);
    std::fclose(file);
    return read == 2 ? static_cast<std::size_t>(pages) * 4096 : 0;
  };
  const std::size_t before = resident();
  const auto queue = fresh_message_queue(std::size_t{128} << 20);
  ASSERT_EQ(put_tag(*queue, 1), Outcome::kOk);
  ASSERT_EQ(get_tags(*queue), MessageTags{1});
  EXPECT_LT(resident() - std::min(before, resident()), std::size_t{16} << 20);
}

}  // namespace
}  // namespace gristmill
