// Shared words that hold nonsense: a typed outcome, never a crash, a hang, or bytes out of bounds.

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "core/message_layout.h"
#include "tests/core/forked.h"
#include "tests/core/message_fixture.h"

namespace gristmill {
namespace {

using namespace std::chrono_literals;
using Outcome = MessageQueue::Outcome;

class MessageQueueDamage : public testing::Test {
 protected:
  MessageQueueDamage() : queue_(fresh_message_queue(10'000)), raw_(raw()) {}

  Segment raw() const {
    return Segment::attach(queue_->name(), SegmentKind::kMessageQueue, MessageLayout::hash(),
                           Deadline::now());
  }
  MessageControl& control() { return *reinterpret_cast<MessageControl*>(raw_.payload()); }
  std::uint64_t* ring() const {
    return reinterpret_cast<std::uint64_t*>(raw_.payload() +
                                            MessageLayout::of(queue_->options()).ring_offset);
  }
  Outcome get() {
    MessageBuffer buffer;
    return queue_->get(buffer, Deadline::now());
  }

  std::unique_ptr<MessageQueue> queue_;
  Segment raw_;
};

TEST_F(MessageQueueDamage, CursorsThatContradictEachOtherAreBroken) {
  ASSERT_EQ(put_tag(*queue_, 1), Outcome::kOk);
  control().head.store(64);
  EXPECT_EQ(get(), Outcome::kBroken);
  EXPECT_EQ(queue_->take(1, 1, Deadline::now()).outcome, Outcome::kBroken);
  control().head.store(0);
  control().tail.store(~std::uint64_t{0});
  EXPECT_EQ(get(), Outcome::kBroken);
  EXPECT_EQ(put_tag(*queue_, 1), Outcome::kBroken);
  EXPECT_EQ(queue_->recover(), 0);
  EXPECT_LE(queue_->bytes_used(), queue_->capacity_bytes());
}

TEST_F(MessageQueueDamage, ARecordThatIsNoneIsBroken) {
  ASSERT_EQ(put_tag(*queue_, 1), Outcome::kOk);
  std::uint64_t& word = ring()[1];
  const std::uint64_t sound = word;
  for (const std::uint64_t nonsense :
       {std::uint64_t{0}, ~std::uint64_t{0}, sound ^ 1, sound + (std::uint64_t{1} << 40)}) {
    word = nonsense;
    EXPECT_EQ(get(), Outcome::kBroken) << nonsense;
    EXPECT_EQ(queue_->take(1, 1, Deadline::now()).outcome, Outcome::kBroken) << nonsense;
  }
  word = sound;
  EXPECT_EQ(get_tags(*queue_), MessageTags{1});
}

TEST_F(MessageQueueDamage, ADamagedGeometryIsRefusedAtAttach) {
  for (const int which : {0, 1, 2, 3}) {
    std::uint64_t& word = (&control().max_size_bytes)[which];
    word += 1;
    try {
      MessageQueue::attach(queue_->name(), Deadline::now());
      ADD_FAILURE() << "attached";
    } catch (const SegmentError& error) {
      EXPECT_EQ(error.reason(), SegmentError::Reason::kCorrupt);
    }
    word -= 1;
  }
  EXPECT_NO_THROW(MessageQueue::attach(queue_->name(), Deadline::now()));
}

TEST_F(MessageQueueDamage, AnotherKindOfSegmentIsRefused) {
  const Segment box = Segment::create(segment_name("message-queue-test", "box"), SegmentKind::kBox, 1, 100);
  const_cast<Segment&>(box).mark_ready();
  try {
    MessageQueue::attach(box.name(), Deadline::now());
    ADD_FAILURE() << "attached";
  } catch (const SegmentError& error) {
    EXPECT_EQ(error.reason(), SegmentError::Reason::kWrongKind);
  }
}

TEST_F(MessageQueueDamage, ACountBeyondAllMeasureMakesNoRoomForSoMany) {
  ASSERT_EQ(put_tag(*queue_, 1), Outcome::kOk);
  control().behind.store(std::uint64_t{1} << 62);
  auto taken =
      queue_->take(std::numeric_limits<std::int64_t>::max(), MessageQueue::kNoLimit, Deadline::now());
  EXPECT_EQ(taken.outcome, Outcome::kOk);
  EXPECT_EQ(tags_of(taken.batch), MessageTags{1});
}

TEST_F(MessageQueueDamage, ATimeBeyondAllMeasureIsLongAgo) {
  // Something that is not to be had keeps a get from ending before it has looked for the dead.
  const auto reserved = queue_->reserve(100, Deadline::now());
  for (const std::int64_t time : {std::numeric_limits<std::int64_t>::min(), std::int64_t{-1},
                                  std::numeric_limits<std::int64_t>::max()}) {
    control().recovered_at.store(time);
    EXPECT_EQ(get(), Outcome::kTimedOut);
    EXPECT_NE(control().recovered_at.load(), time) << "it was looked for";
  }
}

TEST_F(MessageQueueDamage, ATurnThatNobodyCanHaveTakenKeepsNobodyWaiting) {
  control().turns.turn.store(~std::uint64_t{0});
  EXPECT_EQ(put_tag(*queue_, 1, Deadline::in(10s)), Outcome::kOk);
  EXPECT_EQ(put_tag(*queue_, 6, Deadline::in(10s)), Outcome::kOk);
  EXPECT_EQ(get_tags(*queue_), (MessageTags{1, 6}));
}

TEST_F(MessageQueueDamage, RandomWordsNeverCrashOrHang) {
  // Each in a process of its own: a crash is an ending that is not 0.
  for (unsigned seed = 0; seed < 150; ++seed) {
    queue_ = fresh_message_queue(10'000);
    raw_ = raw();
    Forked victim([&] {
      ::alarm(60);  // a hang is an ending that is not 0 either
      std::mt19937_64 random(seed);
      auto* const words = reinterpret_cast<std::uint64_t*>(raw_.payload());
      const std::size_t begin = offsetof(MessageControl, put_lock) / 8 + 3;
      const std::size_t end = sizeof(MessageControl) / 8;
      const std::size_t lock = offsetof(MessageControl, get_lock) / 8;
      for (int i = 0; i < 40; ++i) {
        put_tag(*queue_, random() % 7);
        auto taken = queue_->take(1, 1, Deadline::now());
        auto reserved = queue_->reserve(random() % 6000, Deadline::now());
        const std::uint64_t nonsense = random() % 2 == 0 ? random() : random() % 300;
        const std::size_t at = begin + random() % (end - begin);
        // Locks that seem held by the living are waited for: a matter of their own test.
        if (at < lock || at > lock + 2) words[at] = nonsense;
        std::uint64_t& record = ring()[random() % 1024 / 2 * 2 + 1];
        record = random() % 2 == 0 ? record + (nonsense << 8) : nonsense;
        if (random() % 2 == 0) reserved.reservation = {};
        if (reserved.reservation) reserved.reservation.commit();
        get_tags(*queue_, 1 + static_cast<std::int64_t>(random() % 9));
        queue_->recover();
        queue_->statistics();
        queue_->holders();
        queue_->size();
      }
      return 0;
    });
    ASSERT_TRUE(victim.succeeds()) << seed;
  }
}

}  // namespace
}  // namespace gristmill
