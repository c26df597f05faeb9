// Processes killed -9 or stopped at times that nobody chose: what was acknowledged is delivered, whole
// and once. GRISTMILL_SOAK_KILLS sets how many kills each test does.

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <map>
#include <random>
#include <set>

#include "tests/core/forked.h"
#include "tests/core/message_fixture.h"

namespace gristmill {
namespace {

using namespace std::chrono_literals;
using Outcome = MessageQueue::Outcome;

int kills() {
  const char* text = std::getenv("GRISTMILL_SOAK_KILLS");
  return text != nullptr ? std::atoi(text) : 300;
}

constexpr std::size_t kProducers = 3;
constexpr std::uint64_t kMost = 5;  // messages of one put

// Written by the producer of one life: sequence numbers below it were put.
struct Ledger {
  std::array<std::atomic<std::uint64_t>, kProducers> acknowledged{};
};

// Puts `life << 32 | sequence number` until the queue is closed, in every way there is.
int produce(MessageQueue& queue, std::uint64_t life, std::atomic<std::uint64_t>& acknowledged) {
  for (std::uint64_t sequence = 0;;) {
    const std::uint64_t first = life << 32 | sequence;
    Outcome outcome = Outcome::kOk;
    std::uint64_t count = 1;
    if (sequence % 3 == 0) {
      count = 2 + sequence % (kMost - 1);
      std::vector<MessageBytes> messages;
      for (std::uint64_t i = 0; i < count; ++i)
        messages.push_back(message_of(first + i, length_of(first + i)));
      const std::vector<std::span<const std::byte>> spans(messages.begin(), messages.end());
      const auto put = queue.put_many(spans, Deadline::in(60s));
      outcome = put.outcome;
      if (outcome != Outcome::kOk) {
        acknowledged.store(sequence + static_cast<std::uint64_t>(put.put), std::memory_order_release);
      }
    } else if (sequence % 3 == 1) {
      outcome = put_tag(queue, first, Deadline::in(60s));
    } else {
      const MessageBytes message = message_of(first, length_of(first));
      auto reserved = queue.reserve(message.size() + sequence % 100, Deadline::in(60s));
      outcome = reserved.outcome;
      if (outcome == Outcome::kOk) {
        std::memcpy(reserved.reservation.bytes().data(), message.data(), message.size());
        reserved.reservation.commit(message.size());
      }
    }
    if (outcome != Outcome::kOk) return outcome == Outcome::kClosed ? 0 : 1;
    sequence += count;
    acknowledged.store(sequence, std::memory_order_release);
  }
}

struct Account {
  std::uint64_t acknowledged = 0;
  std::set<std::uint64_t> seen;
  std::uint64_t last = 0;
};

class Accounts {
 public:
  // One consumer sees each producer's messages once and in order.
  void see(std::uint64_t tag) {
    ASSERT_NE(tag, kTorn);
    Account& account = of_[tag >> 32];
    const std::uint64_t number = tag & 0xFFFFFFFF;
    ASSERT_TRUE(account.seen.insert(number).second) << "doubled";
    ASSERT_GE(number, account.last) << "out of order";
    account.last = number;
  }
  void end(std::uint64_t life, std::uint64_t acknowledged) { of_[life].acknowledged = acknowledged; }
  void settle() const {
    for (const auto& [life, account] : of_) {
      for (std::uint64_t i = 0; i < account.acknowledged; ++i) {
        ASSERT_TRUE(account.seen.contains(i)) << "life " << life << ": number " << i << " is lost";
      }
      // Beyond them, only its last put may have left whole messages.
      if (!account.seen.empty()) {
        ASSERT_LT(*account.seen.rbegin(), account.acknowledged + kMost) << life;
      }
    }
  }

 private:
  std::map<std::uint64_t, Account> of_;
};

// Gets until the queue is closed and drained; or, when not `all`, until the deadline.
Outcome consume(MessageQueue& queue, std::mt19937& random, Accounts& accounts, Deadline until, bool all) {
  MessageBuffer buffer;
  while (true) {
    Outcome outcome;
    if (random() % 3 == 0) {
      const auto taken = queue.take(1 + random() % 8, MessageQueue::kNoLimit, until);
      outcome = taken.outcome;
      for (const std::uint64_t tag : tags_of(taken.batch)) accounts.see(tag);
    } else {
      outcome = queue.get_many(1 + random() % 8, MessageQueue::kNoLimit, buffer, until);
      for (std::size_t i = 0; i < buffer.size(); ++i) accounts.see(tag_of(buffer[i]).value_or(kTorn));
    }
    if (outcome != Outcome::kOk || testing::Test::HasFatalFailure()) return outcome;
    if (!all && until.passed()) return outcome;
  }
}

// Kills and stops producers at random while a consumer takes what comes.
void torment_producers(std::uint64_t max_size_bytes, int times) {
  const auto queue = fresh_message_queue(max_size_bytes);
  SharedWithChildren<Ledger> ledger;
  Accounts accounts;
  std::mt19937 random(1);
  std::vector<Forked> producers;
  std::array<std::uint64_t, kProducers> life{};
  std::uint64_t lives = 0;
  const auto start = [&](std::size_t p) {
    ledger->acknowledged[p].store(0);
    life[p] = ++lives;
    return Forked([&, p] { return produce(*queue, life[p], ledger->acknowledged[p]); });
  };
  for (std::size_t p = 0; p < kProducers; ++p) producers.push_back(start(p));
  for (int i = 0; i < times && !testing::Test::HasFailure(); ++i) {
    consume(*queue, random, accounts, Deadline::in(std::chrono::microseconds(random() % 3000)), false);
    const std::size_t p = random() % kProducers;
    if (random() % 4 == 0) {
      ASSERT_TRUE(producers[p].stop());
      consume(*queue, random, accounts, Deadline::in(std::chrono::microseconds(random() % 1000)), false);
      producers[p].signal(SIGCONT);
      continue;
    }
    producers[p].kill();
    accounts.end(life[p], ledger->acknowledged[p].load(std::memory_order_acquire));
    std::vector<Forked> next;
    for (std::size_t j = 0; j < kProducers; ++j) next.push_back(j == p ? start(p) : std::move(producers[j]));
    producers = std::move(next);
  }
  queue->close();
  EXPECT_EQ(consume(*queue, random, accounts, Deadline::in(60s), true), Outcome::kClosed);
  for (std::size_t p = 0; p < kProducers; ++p) {
    EXPECT_TRUE(producers[p].succeeds());
    accounts.end(life[p], ledger->acknowledged[p].load(std::memory_order_acquire));
  }
  accounts.settle();
  queue->recover();
  EXPECT_EQ(queue->size(), 0);
  EXPECT_EQ(queue->bytes_used(), 0u);
}

TEST(MessageQueueKill, ProducersKilledOrStoppedAtAnyTimeLoseAndDoubleNothing) {
  torment_producers(30'000, kills());
  if (!HasFailure()) torment_producers(1 << 20, kills() / 3);
}

// Everything that consumers saw, in the order in which each did.
struct Log {
  std::atomic<std::uint64_t> end{0};
  std::array<std::atomic<std::uint64_t>, 2'000'000> tags{};
};

TEST(MessageQueueKill, ConsumersKilledAtAnyTimeTakeNoMoreWithThemThanTheirBatch) {
  constexpr std::uint64_t kBatch = 4;
  const auto queue = fresh_message_queue(30'000);
  SharedWithChildren<Log> log;
  SharedWithChildren<Ledger> ledger;
  std::mt19937 random(2);
  const auto run = [&](unsigned seed) {
    std::mt19937 choice(seed);
    MessageBuffer buffer;
    while (true) {
      const bool in_place = choice() % 3 == 0;
      MessageQueue::TakeResult taken;
      Outcome outcome;
      if (in_place) {
        taken = queue->take(kBatch, MessageQueue::kNoLimit, Deadline::in(60s));
        outcome = taken.outcome;
      } else {
        outcome = queue->get_many(kBatch, MessageQueue::kNoLimit, buffer, Deadline::in(60s));
      }
      if (outcome != Outcome::kOk) return outcome == Outcome::kClosed ? 0 : 1;
      const std::size_t count = in_place ? taken.batch.size() : buffer.size();
      for (std::size_t i = 0; i < count; ++i) {
        const auto tag = tag_of(in_place ? taken.batch[i] : buffer[i]);
        if (!tag) return 2;
        const std::uint64_t at = log->end.fetch_add(1);
        if (at >= log->tags.size()) return 3;
        log->tags[at].store(*tag + 1);  // 0: killed before it could say
      }
    }
  };
  std::vector<Forked> producers;
  for (std::uint64_t p = 0; p < 2; ++p) {
    producers.emplace_back([&, p] { return produce(*queue, p + 1, ledger->acknowledged[p]); });
  }
  std::uint64_t killed = 0;
  std::vector<Forked> consumers;
  for (unsigned i = 0; i < 3; ++i) consumers.emplace_back([&, i] { return run(i); });
  for (int i = 0; i < kills() && log->end.load() + 100'000 < log->tags.size(); ++i) {
    ::usleep(static_cast<useconds_t>(random() % 3000));
    const std::size_t victim = random() % consumers.size();
    consumers[victim].kill();
    ++killed;
    std::vector<Forked> next;
    for (std::size_t j = 0; j < consumers.size(); ++j) {
      if (j == victim) {
        const unsigned seed = 100 + static_cast<unsigned>(i);
        next.emplace_back([&, seed] { return run(seed); });
      } else {
        next.push_back(std::move(consumers[j]));
      }
    }
    consumers = std::move(next);
  }
  queue->close();
  for (Forked& consumer : consumers) EXPECT_TRUE(consumer.succeeds());
  for (Forked& producer : producers) EXPECT_TRUE(producer.succeeds());
  std::map<std::uint64_t, std::set<std::uint64_t>> seen;
  for (std::uint64_t i = 0; i < log->end.load(); ++i) {
    const std::uint64_t tag = log->tags[i].load();
    if (tag == 0) continue;
    ASSERT_TRUE(seen[(tag - 1) >> 32].insert((tag - 1) & 0xFFFFFFFF).second) << "doubled";
  }
  std::uint64_t lost = 0;
  for (std::uint64_t p = 0; p < 2; ++p) lost += ledger->acknowledged[p].load() - seen[p + 1].size();
  EXPECT_LE(lost, killed * kBatch);
  queue->recover();
  EXPECT_EQ(queue->size(), 0);
  EXPECT_EQ(queue->bytes_used(), 0u);
  EXPECT_TRUE(queue->holders().empty());
}

TEST(MessageQueueKill, EverybodyKilledAgainAndAgainLeavesAQueueThatWorks) {
  const auto queue = fresh_message_queue(30'000);
  SharedWithChildren<Ledger> ledger;
  std::mt19937 random(3);
  for (int round = 0; round < kills() / 5; ++round) {
    std::vector<Forked> everybody;
    for (std::uint64_t p = 0; p < kProducers; ++p) {
      everybody.emplace_back([&, p] { return produce(*queue, p, ledger->acknowledged[p]); });
    }
    for (int c = 0; c < 2; ++c) {
      everybody.emplace_back([&, c] {
        while (c == 0 ? !get_tags(*queue, 2, Deadline::in(60s)).empty()
                      : queue->take(3, MessageQueue::kNoLimit, Deadline::in(60s)).batch.size() > 0) {
        }
        return 1;
      });
    }
    ::usleep(static_cast<useconds_t>(random() % 4000));
    for (Forked& one : everybody) one.signal(SIGKILL);
  }
  queue->recover();
  while (true) {
    const MessageTags tags = get_tags(*queue);
    if (tags.empty()) break;
    for (const std::uint64_t tag : tags) ASSERT_NE(tag, kTorn);
  }
  EXPECT_EQ(queue->bytes_used(), 0u);
  EXPECT_EQ(queue->size(), 0);
  for (std::uint64_t tag = 0; tag < 7; ++tag) ASSERT_EQ(put_tag(*queue, tag), Outcome::kOk);
  EXPECT_EQ(get_tags(*queue), tags_between(0, 7));
}

}  // namespace
}  // namespace gristmill
