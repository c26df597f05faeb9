// Many producers and consumers at once, as threads and as processes: every message once, whole, and in
// order for each producer and consumer.

#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <thread>

#include "tests/core/forked.h"
#include "tests/core/message_fixture.h"

namespace gristmill {
namespace {

using namespace std::chrono_literals;
using Outcome = MessageQueue::Outcome;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::uint64_t kEach = 2'000;
#else
constexpr std::uint64_t kEach = 10'000;
#endif

bool produce(MessageQueue& queue, std::uint64_t producer) {
  for (std::uint64_t i = 0; i < kEach; ++i) {
    if (put_tag(queue, producer << 32 | i, Deadline::in(60s)) != Outcome::kOk) return false;
  }
  return true;
}

// In one of the ways; false when a message is torn, or out of its producer's order.
template <class See>
bool consume(MessageQueue& queue, int way, See&& see) {
  std::map<std::uint64_t, std::uint64_t> next;
  const auto check = [&](std::span<const std::byte> message) {
    const auto tag = tag_of(message);
    if (!tag || (*tag & 0xFFFFFFFF) < next[*tag >> 32]) return false;
    next[*tag >> 32] = (*tag & 0xFFFFFFFF) + 1;
    see(*tag);
    return true;
  };
  MessageBuffer buffer;
  while (true) {
    if (way == 2) {
      const auto taken = queue.take(20, MessageQueue::kNoLimit, Deadline::in(60s));
      if (taken.outcome != Outcome::kOk) return taken.outcome == Outcome::kClosed;
      for (std::size_t i = 0; i < taken.batch.size(); ++i) {
        if (!check(taken.batch[i])) return false;
      }
      continue;
    }
    const Outcome outcome =
        queue.get_many(way == 0 ? 1 : 100, MessageQueue::kNoLimit, buffer, Deadline::in(60s));
    if (outcome != Outcome::kOk) return outcome == Outcome::kClosed;
    for (std::size_t i = 0; i < buffer.size(); ++i) {
      if (!check(buffer[i])) return false;
    }
  }
}

void threads_exchange(std::uint64_t producers, int consumers, std::uint64_t max_size_bytes,
                      std::uint64_t max_messages) {
  const auto queue = fresh_message_queue(max_size_bytes, max_messages);
  std::mutex mutex;
  std::map<std::uint64_t, int> seen;
  std::vector<std::thread> sinks, sources;
  for (int c = 0; c < consumers; ++c) {
    sinks.emplace_back([&, c] {
      EXPECT_TRUE(consume(*queue, c % 3, [&](std::uint64_t tag) {
        std::lock_guard guard(mutex);
        ++seen[tag];
      }));
    });
  }
  for (std::uint64_t p = 0; p < producers; ++p) {
    sources.emplace_back([&, p] { EXPECT_TRUE(produce(*queue, p)); });
  }
  for (std::thread& source : sources) source.join();
  queue->close();
  for (std::thread& sink : sinks) sink.join();
  EXPECT_EQ(seen.size(), producers * kEach);
  for (const auto& [tag, times] : seen) ASSERT_EQ(times, 1) << tag;
  EXPECT_EQ(queue->size(), 0);
  EXPECT_EQ(queue->bytes_used(), 0u);
  EXPECT_EQ(queue->statistics().puts, producers * kEach);
  EXPECT_EQ(queue->statistics().gets, producers * kEach);
}

TEST(MessageQueueThreads, OneToOne) { threads_exchange(1, 1, 30'000, 0); }
TEST(MessageQueueThreads, ManyToOne) { threads_exchange(4, 1, 30'000, 0); }
TEST(MessageQueueThreads, OneToMany) { threads_exchange(1, 6, 30'000, 0); }
TEST(MessageQueueThreads, ManyToManyThroughFewPlaces) { threads_exchange(3, 3, 1 << 20, 2); }
TEST(MessageQueueThreads, ManyToManyThroughALargeQueue) { threads_exchange(3, 3, 1 << 20, 0); }

TEST(MessageQueueThreads, ManyProcessesToManyProcesses) {
  struct Tally {
    std::atomic<std::uint64_t> count{0};
    std::atomic<std::uint64_t> sum{0};
  };
  constexpr std::uint64_t kProducers = 5;
  const auto queue = fresh_message_queue(60'000);
  SharedWithChildren<Tally> tally;
  std::vector<Forked> sinks, sources;
  for (int c = 0; c < 6; ++c) {
    sinks.emplace_back([&, c] {
      return consume(*queue, c % 3,
                     [&](std::uint64_t tag) {
                       tally->count.fetch_add(1);
                       tally->sum.fetch_add(tag);
                     })
                 ? 0
                 : 1;
    });
  }
  for (std::uint64_t p = 0; p < kProducers; ++p) {
    sources.emplace_back([&, p] { return produce(*queue, p) ? 0 : 1; });
  }
  for (Forked& source : sources) EXPECT_TRUE(source.succeeds());
  queue->close();
  for (Forked& sink : sinks) EXPECT_TRUE(sink.succeeds());
  EXPECT_EQ(tally->count.load(), kProducers * kEach);
  std::uint64_t sum = 0;
  for (std::uint64_t p = 0; p < kProducers; ++p) sum += kEach * (p << 32) + kEach * (kEach - 1) / 2;
  EXPECT_EQ(tally->sum.load(), sum);
}

TEST(MessageQueueThreads, AQueueThatDropsIsNeverFullNorTorn) {
  for (const Overflow overflow : {Overflow::kDropOldest, Overflow::kLatest}) {
    const auto queue = fresh_message_queue(60'000, 0, overflow);
    std::atomic<std::uint64_t> seen{0};
    std::vector<std::thread> threads;
    for (std::uint64_t p = 0; p < 3; ++p) {
      threads.emplace_back([&, p] { EXPECT_TRUE(produce(*queue, p)); });
    }
    std::thread sink([&] { EXPECT_TRUE(consume(*queue, 1, [&](std::uint64_t) { seen.fetch_add(1); })); });
    for (std::thread& thread : threads) thread.join();
    queue->close();
    sink.join();
    const auto statistics = queue->statistics();
    EXPECT_EQ(statistics.puts, 3 * kEach);
    EXPECT_EQ(statistics.gets, seen.load());
    EXPECT_EQ(statistics.gets + statistics.dropped, 3 * kEach);
  }
}

TEST(MessageQueueThreads, ClosedWhileAllAreAtItEverythingPutIsTaken) {
  for (int round = 0; round < 30; ++round) {
    const auto queue = fresh_message_queue(20'000);
    std::atomic<std::uint64_t> put{0};
    std::atomic<std::uint64_t> got{0};
    std::vector<std::thread> threads;
    for (std::uint64_t p = 0; p < 2; ++p) {
      threads.emplace_back([&, p] {
        for (std::uint64_t i = 0;; ++i) {
          const Outcome outcome = put_tag(*queue, p << 32 | i, Deadline::in(60s));
          if (outcome != Outcome::kOk) {
            EXPECT_EQ(outcome, Outcome::kClosed);
            return;
          }
          put.fetch_add(1);
        }
      });
      threads.emplace_back([&, p] {
        EXPECT_TRUE(consume(*queue, static_cast<int>(p) + 1, [&](std::uint64_t) { got.fetch_add(1); }));
      });
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100 * round));
    queue->close();
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(put.load(), got.load());
  }
}

}  // namespace
}  // namespace gristmill
