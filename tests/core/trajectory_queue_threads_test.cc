// Threads of one process, for the thread sanitizer too.

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "tests/core/trajectory_fixture.h"

namespace gristmill {
namespace {

using namespace std::chrono_literals;
using Outcome = TrajectoryQueue::Outcome;

TEST(TrajectoryQueueThreads, ManyProducersAndOneConsumerLoseAndDoubleNothing) {
  const auto queue = fresh_queue(16);
  constexpr std::uint64_t kProducers = 6;
  constexpr std::uint64_t kEach = 600;
  std::atomic<bool> failed{false};
  std::vector<std::thread> producers;
  for (std::uint64_t p = 0; p < kProducers; ++p) {
    producers.emplace_back([&, p] {
      // Vectors of 1 to 5 at a time.
      for (std::uint64_t i = 0; i < kEach;) {
        const std::uint64_t count = std::min(kEach - i, 1 + (i + p) % 5);
        const auto put = Grist(p << 32 | i, count).put(*queue, Deadline::in(60s));
        if (put.outcome != Outcome::kOk) failed = true;
        i += count;
      }
    });
  }
  std::array<std::uint64_t, kProducers> next{};
  std::uint64_t got = 0;
  while (got < kProducers * kEach && !failed) {
    const auto n = static_cast<std::int64_t>(std::min(kProducers * kEach - got, 1 + got % 16));
    const auto tags = get_tags(*queue, n, Deadline::in(60s));
    ASSERT_EQ(tags.size(), static_cast<std::size_t>(n));
    for (const std::uint64_t tag : tags) ASSERT_EQ(tag & 0xFFFFFFFF, next[tag >> 32]++);
    got += tags.size();
  }
  for (std::thread& producer : producers) producer.join();
  EXPECT_FALSE(failed.load());
  EXPECT_EQ(queue->size(), 0);
}

TEST(TrajectoryQueueThreads, BatchesAreReleasedByOtherThreadsWhileMoreAreTaken) {
  const auto queue = fresh_queue(12);
  constexpr std::uint64_t kTotal = 3000;
  std::thread producer([&] { Grist(0, kTotal).put(*queue, Deadline::in(60s)); });
  std::mutex mutex;
  std::vector<TrajectoryQueue::Batch> out;
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> torn{0};
  std::vector<std::thread> releasers;
  for (int t = 0; t < 2; ++t) {
    releasers.emplace_back([&] {
      while (true) {
        TrajectoryQueue::Batch batch;
        {
          std::lock_guard guard(mutex);
          if (!out.empty()) {
            batch = std::move(out.back());  // the newest first: against the order
            out.pop_back();
          } else if (done) {
            return;
          }
        }
        if (batch.size() > 0 && !Grist::tags(batch)) torn.fetch_add(1);
        if (batch.size() == 0) std::this_thread::yield();
      }
    });
  }
  std::uint64_t got = 0;
  while (got < kTotal) {
    auto result = queue->get_many(3, Deadline::in(60s));
    if (result.outcome != Outcome::kOk) break;
    got += 3;
    std::lock_guard guard(mutex);
    out.push_back(std::move(result.batch));
  }
  done = true;
  for (std::thread& releaser : releasers) releaser.join();
  producer.join();
  EXPECT_EQ(got, kTotal);
  EXPECT_EQ(torn.load(), 0u);
  EXPECT_EQ(queue->size(), 0);
}

TEST(TrajectoryQueueThreads, CloseAmidPutsDeliversExactlyWhatWasAcknowledged) {
  for (int round = 0; round < 30; ++round) {
    const auto queue = fresh_queue(8);
    std::atomic<std::uint64_t> acknowledged{0};
    std::vector<std::thread> producers;
    for (std::uint64_t p = 0; p < 3; ++p) {
      producers.emplace_back([&, p] {
        for (std::uint64_t i = 0;; ++i) {
          const auto put = Grist(p << 32 | i, 1).put(*queue, Deadline::in(60s));
          acknowledged.fetch_add(static_cast<std::uint64_t>(put.put));
          if (put.outcome != Outcome::kOk) return;
        }
      });
    }
    std::thread closer([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(100 * round));
      queue->close();
    });
    std::uint64_t got = 0;
    while (true) {
      const auto result = queue->get_many(4, Deadline::in(60s));
      if (result.outcome != Outcome::kOk) {
        EXPECT_EQ(result.outcome, Outcome::kClosed);
        break;
      }
      got += static_cast<std::uint64_t>(result.batch.size());
    }
    closer.join();
    for (std::thread& producer : producers) producer.join();
    EXPECT_EQ(got, acknowledged.load());
  }
}

}  // namespace
}  // namespace gristmill
