// Processes killed -9 at times that nobody chose: what was acknowledged is delivered, whole.
// GRISTMILL_SOAK_KILLS sets how many kills each test does.

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <random>
#include <set>

#include "tests/core/forked.h"
#include "tests/core/trajectory_fixture.h"

namespace gristmill {
namespace {

using namespace std::chrono_literals;
using Outcome = TrajectoryQueue::Outcome;

int kills() {
  const char* text = std::getenv("GRISTMILL_SOAK_KILLS");
  return text != nullptr ? std::atoi(text) : 300;
}

// Written by the producer of one life, read when it is dead.
struct Life {
  std::atomic<std::uint64_t> acknowledged{0};  // sequence numbers below it were put
};

constexpr int kProducers = 3;
struct Ledger {
  Life now[kProducers];
};

// Pushes `life << 32 | sequence number` for ever, 1 to 3 at a time.
int produce(TrajectoryQueue& queue, std::uint64_t life, Life& record) {
  for (std::uint64_t sequence = 0;;) {
    const std::uint64_t count = 1 + (life + sequence) % 3;
    const auto put = Grist(life << 32 | sequence, count).put(queue, Deadline::in(60s));
    if (put.outcome != Outcome::kOk) return put.outcome == Outcome::kClosed ? 0 : 1;
    sequence += count;
    record.acknowledged.store(sequence, std::memory_order_release);
  }
}

// What one life is known to have put, and what was seen of it.
struct Account {
  std::uint64_t acknowledged = 0;
  std::set<std::uint64_t> seen;
};

void settle(const std::map<std::uint64_t, Account>& accounts) {
  for (const auto& [life, account] : accounts) {
    for (std::uint64_t i = 0; i < account.acknowledged; ++i) {
      ASSERT_TRUE(account.seen.contains(i)) << "life " << life << ": number " << i << " is lost";
    }
    // Beyond them, only its last put may have left whole trajectories.
    if (!account.seen.empty()) {
      ASSERT_LT(*account.seen.rbegin(), account.acknowledged + 3) << life;
    }
  }
}

TEST(TrajectoryQueueKill, ProducersKilledAtAnyTimeLoseAndDoubleNothing) {
  const auto queue = fresh_queue(10);
  SharedWithChildren<Ledger> ledger;
  std::map<std::uint64_t, Account> accounts;
  std::mt19937 random(1);
  std::vector<Forked> producers;
  std::array<std::uint64_t, kProducers> life{};
  std::uint64_t lives = 0;
  const auto start = [&](std::size_t p) {
    ledger->now[p].acknowledged.store(0);
    life[p] = ++lives;
    return Forked([&, p] { return produce(*queue, life[p], ledger->now[p]); });
  };
  const auto note_end = [&](std::size_t p) {
    accounts[life[p]].acknowledged = ledger->now[p].acknowledged.load(std::memory_order_acquire);
  };
  const auto take = [&](std::int64_t n, Deadline deadline) {
    const auto got = queue->get_many(n, deadline);
    if (got.outcome != Outcome::kOk) return got.outcome;
    const auto tags = Grist::tags(got.batch);
    EXPECT_TRUE(tags.has_value()) << "torn";
    for (const std::uint64_t tag : tags.value_or(std::vector<std::uint64_t>{})) {
      EXPECT_TRUE(accounts[tag >> 32].seen.insert(tag & 0xFFFFFFFF).second) << "doubled";
    }
    return got.outcome;
  };
  for (std::size_t p = 0; p < kProducers; ++p) producers.push_back(start(p));
  for (int kill = 0; kill < kills() && !HasFailure(); ++kill) {
    const auto until = Deadline::in(std::chrono::microseconds(random() % 3000));
    while (!until.passed()) take(1 + random() % 10, until);
    const std::size_t p = random() % kProducers;
    producers[p].kill();
    note_end(p);
    std::vector<Forked> next;
    for (std::size_t i = 0; i < kProducers; ++i) {
      next.push_back(i == p ? start(p) : std::move(producers[i]));
    }
    producers = std::move(next);
  }
  queue->close();
  Outcome outcome = Outcome::kOk;
  while (outcome == Outcome::kOk) outcome = take(5, Deadline::in(60s));
  EXPECT_EQ(outcome, Outcome::kClosed);
  for (std::size_t p = 0; p < kProducers; ++p) {
    EXPECT_TRUE(producers[p].succeeds());
    note_end(p);
  }
  settle(accounts);
  EXPECT_EQ(queue->size(), 0);
}

TEST(TrajectoryQueueKill, ConsumersKilledAtAnyTimeLoseNothingAndRepeatOnlyWhatTheyHadNotReleased) {
  constexpr std::int64_t kBatch = 4;
  // Written by the living consumer only; its last batch is `logged` before it is released.
  struct Log {
    std::atomic<std::uint64_t> logged{0};
    std::array<std::uint64_t, 4'000'000> tags;
  };
  const auto queue = fresh_queue(10);
  SharedWithChildren<Log> log;
  SharedWithChildren<Ledger> ledger;
  std::mt19937 random(2);
  const auto consume = [&](bool last) {
    while (true) {
      // A long soak fills the log; what is left of it is for the last one.
      if (!last && log->logged.load() + 1000 > log->tags.size()) ::pause();
      auto got = queue->get_many(kBatch, Deadline::in(60s));
      if (got.outcome != Outcome::kOk) return got.outcome == Outcome::kClosed ? 0 : 1;
      const auto tags = Grist::tags(got.batch);
      if (!tags) return 2;
      const std::uint64_t at = log->logged.load();
      if (at + tags->size() > log->tags.size()) return 3;
      std::copy(tags->begin(), tags->end(), log->tags.begin() + static_cast<std::ptrdiff_t>(at));
      log->logged.store(at + tags->size());
      got.batch.release();
    }
  };
  std::vector<Forked> producers;
  for (std::uint64_t p = 0; p < 2; ++p) {
    producers.emplace_back([&, p] { return produce(*queue, p + 1, ledger->now[p]); });
  }
  std::vector<std::uint64_t> ends;  // where in the log a consumer was killed
  for (int kill = 0; kill < kills(); ++kill) {
    Forked consumer([&] { return consume(false); });
    ::usleep(static_cast<useconds_t>(random() % 3000));
    consumer.kill();
    ends.push_back(log->logged.load());
  }
  queue->close();
  Forked last([&] { return consume(true); });
  EXPECT_TRUE(last.succeeds());
  for (Forked& producer : producers) EXPECT_TRUE(producer.succeeds());

  std::map<std::uint64_t, Account> accounts;
  for (std::uint64_t p = 0; p < 2; ++p) accounts[p + 1].acknowledged = ledger->now[p].acknowledged.load();
  std::size_t end = 0;
  for (std::uint64_t i = 0; i < log->logged.load(); ++i) {
    while (end < ends.size() && ends[end] <= i) ++end;
    const std::uint64_t tag = log->tags[i];
    if (accounts[tag >> 32].seen.insert(tag & 0xFFFFFFFF).second) continue;
    // A repetition: of the very batch that the killed one had logged last.
    ASSERT_GT(end, 0u);
    const std::uint64_t killed_at = ends[end - 1];
    ASSERT_LT(i - killed_at, static_cast<std::uint64_t>(kBatch));
    ASSERT_GE(killed_at, static_cast<std::uint64_t>(kBatch));
    ASSERT_EQ(tag, log->tags[i - kBatch]);
  }
  settle(accounts);
}

TEST(TrajectoryQueueKill, EverybodyKilledAgainAndAgainLeavesAQueueThatWorks) {
  const auto queue = fresh_queue(6);
  SharedWithChildren<Ledger> ledger;
  std::mt19937 random(3);
  for (int round = 0; round < kills() / 5; ++round) {
    std::vector<Forked> everybody;
    for (std::uint64_t p = 0; p < kProducers; ++p) {
      everybody.emplace_back([&, p] { return produce(*queue, p, ledger->now[p]); });
    }
    everybody.emplace_back([&] {
      while (!get_tags(*queue, 2, Deadline::in(60s)).empty()) {
      }
      return 1;
    });
    ::usleep(static_cast<useconds_t>(random() % 4000));
    for (Forked& one : everybody) one.signal(SIGKILL);
  }
  // The parent finds every place in working order.
  while (Grist(9, 1).put(*queue, Deadline::in(100ms)).outcome == Outcome::kOk) {
  }
  EXPECT_EQ(queue->size(), 6);
  EXPECT_EQ(get_tags(*queue, 6, Deadline::in(20s)).size(), 6u);
  ASSERT_TRUE(put_each(*queue, 0, 6));
  EXPECT_EQ(get_tags(*queue, 6), (std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5}));
}

}  // namespace
}  // namespace gristmill
