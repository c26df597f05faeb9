// Shared words that hold nonsense: a typed outcome, never a crash, a hang, or bytes out of bounds.

#include <gtest/gtest.h>

#include <random>

#include "core/trajectory_layout.h"
#include "tests/core/forked.h"
#include "tests/core/trajectory_fixture.h"

namespace gristmill {
namespace {

using namespace std::chrono_literals;
using Outcome = TrajectoryQueue::Outcome;

class TrajectoryQueueDamage : public testing::Test {
 protected:
  TrajectoryQueueDamage() : queue_(fresh_queue(4)), layout_(QueueLayout::of(Grist::spec(), 4)), raw_(raw()) {}

  Segment raw() const {
    return Segment::attach(queue_->name(), SegmentKind::kTrajectoryQueue, QueueLayout::hash(),
                           Deadline::now());
  }

  QueueControl& control() { return *reinterpret_cast<QueueControl*>(raw_.payload()); }

  std::unique_ptr<TrajectoryQueue> queue_;
  QueueLayout layout_;
  Segment raw_;
};

TEST_F(TrajectoryQueueDamage, AHeadBeyondTheTailIsBroken) {
  ASSERT_TRUE(put_each(*queue_, 0, 2));
  control().head.store(3);
  EXPECT_EQ(Grist(5, 1).put(*queue_, Deadline::in(10s)).outcome, Outcome::kBroken);
  EXPECT_EQ(queue_->get_many(1, Deadline::in(10s)).outcome, Outcome::kBroken);
  EXPECT_EQ(queue_->recover(), 0);
}

TEST_F(TrajectoryQueueDamage, ATailFarBeyondTheHeadIsBroken) {
  control().tail.store(std::uint64_t{1} << 63);
  EXPECT_EQ(Grist(5, 1).put(*queue_, Deadline::in(10s)).outcome, Outcome::kBroken);
  EXPECT_EQ(queue_->get_many(1, Deadline::in(10s)).outcome, Outcome::kBroken);
  EXPECT_LE(queue_->size(), 4);
  queue_->statistics();
}

TEST_F(TrajectoryQueueDamage, NoMoreIsHandedOutThanThereArePlaces) {
  ASSERT_TRUE(put_each(*queue_, 0, 4));
  const auto out = queue_->get_many(3, Deadline::in(10s));
  ASSERT_EQ(out.batch.size(), 3);
  // Four more seem to be ready, in places that are still out.
  control().tail.store(7 << 1);
  auto* words = reinterpret_cast<std::uint64_t*>(raw_.payload() + layout_.words_offset);
  for (std::uint64_t p = 3; p < 7; ++p) words[p % 4] = Place{p, 0, PlaceState::kReady}.pack();
  EXPECT_EQ(queue_->get_many(2, Deadline::in(10s)).outcome, Outcome::kBroken);
  auto last = queue_->get_many(1, Deadline::in(10s));
  EXPECT_EQ(last.outcome, Outcome::kOk);
}

TEST_F(TrajectoryQueueDamage, ADamagedGeometryIsRefusedAtAttach) {
  control().capacity = 5;
  try {
    TrajectoryQueue::attach(queue_->name(), Deadline::now());
    ADD_FAILURE() << "attached";
  } catch (const SegmentError& error) {
    EXPECT_EQ(error.reason(), SegmentError::Reason::kCorrupt);
  }
}

TEST_F(TrajectoryQueueDamage, RandomWordsNeverCrashOrHang) {
  // Each in a process of its own: a crash is an ending that is not 0.
  for (unsigned seed = 0; seed < 200; ++seed) {
    queue_ = fresh_queue(4);
    raw_ = raw();
    Forked victim([&] {
      std::mt19937_64 random(seed);
      auto* bytes = reinterpret_cast<std::uint64_t*>(raw_.payload());
      const std::size_t from = offsetof(QueueControl, tail) / 8;
      const std::size_t to = layout_.words_offset / 8 + layout_.capacity;
      for (int i = 0; i < 40; ++i) {
        const std::size_t at = from + random() % (to - from);
        bytes[at] = random() % 2 == 0 ? random() : random() % 8;
        Grist(1, 1).put(*queue_, Deadline::now());
        try {
          queue_->get_many(1 + static_cast<std::int64_t>(random() % 4), Deadline::now());
        } catch (const std::logic_error&) {
          // The consumer's word says somebody else.
        }
        queue_->recover();
        queue_->statistics();
      }
      return 0;
    });
    ASSERT_TRUE(victim.succeeds()) << seed;
  }
}

}  // namespace
}  // namespace gristmill
