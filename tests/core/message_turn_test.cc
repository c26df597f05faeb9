#include "core/message_turn.h"

#include <gtest/gtest.h>

#include "tests/core/forked.h"

namespace gristmill {
namespace {

constexpr std::int64_t kStart = 1'000'000;
constexpr std::int64_t kPatience = MessageTurn::kPatience;
constexpr std::int64_t kHold = MessageTurn::kHold;

TEST(MessageTurn, BelongsToNobodyBeforeAPutHasWaitedForItsPatience) {
  MessageTurns turns;
  MessageTurn large(turns);
  const MessageTurn small(turns);
  EXPECT_FALSE(small.is_anothers(kStart));
  large.wait(kStart);
  large.wait(kStart + kPatience - 1);
  EXPECT_FALSE(small.is_anothers(kStart + kPatience - 1));
  large.wait(kStart + kPatience);
  EXPECT_TRUE(small.is_anothers(kStart + kPatience));
  EXPECT_FALSE(large.is_anothers(kStart + kPatience));
}

TEST(MessageTurn, IsFreeAgainWhenItsHolderIsDoneOrGone) {
  MessageTurns turns;
  const MessageTurn small(turns);
  {
    MessageTurn large(turns);
    large.wait(kStart);
    EXPECT_FALSE(large.done());
    large.wait(kStart);
    large.wait(kStart + kPatience);
    EXPECT_TRUE(large.done());
    EXPECT_FALSE(small.is_anothers(kStart + kPatience));
    // The next wait of the same put has its patience to begin with.
    large.wait(kStart + kPatience);
    EXPECT_FALSE(small.is_anothers(kStart + kPatience));
    large.wait(kStart + 2 * kPatience);
    EXPECT_TRUE(small.is_anothers(kStart + 2 * kPatience));
  }
  EXPECT_FALSE(small.is_anothers(kStart + 2 * kPatience));
}

TEST(MessageTurn, LapsesUnlessItIsRenewed) {
  MessageTurns turns;
  MessageTurn large(turns);
  const MessageTurn small(turns);
  large.wait(kStart);
  large.wait(kStart + kPatience);
  large.wait(kStart + kPatience + kHold / 2);
  EXPECT_TRUE(small.is_anothers(kStart + kPatience + kHold));
  EXPECT_FALSE(small.is_anothers(kStart + kPatience + kHold / 2 + kHold));
  EXPECT_FALSE(small.is_anothers(kStart + kPatience)) << "once it has lapsed, it is nobody's";
}

TEST(MessageTurn, IsFreeAgainWhenItsHolderIsDead) {
  const SharedWithChildren<MessageTurns> turns;
  const MessageTurn small(*turns);
  Forked holder([&] {
    MessageTurn large(*turns);
    large.wait(kStart);
    large.wait(kStart + kPatience);
    ::raise(SIGSTOP);
    return 0;
  });
  ASSERT_TRUE(holder.wait_stopped());
  small.forget_dead();
  EXPECT_TRUE(small.is_anothers(kStart + kPatience)) << "it is only stopped";
  holder.kill();
  small.forget_dead();
  EXPECT_FALSE(small.is_anothers(kStart + kPatience));
}

TEST(MessageTurn, LapsesWhereverTheClockStands) {
  for (const std::int64_t start : {std::int64_t{1}, (std::int64_t{1} << 26) - kPatience - 1,
                                   (std::int64_t{1} << 40) - kPatience - kHold / 2}) {
    MessageTurns turns;
    MessageTurn large(turns);
    const MessageTurn small(turns);
    large.wait(start);
    large.wait(start + kPatience);
    EXPECT_TRUE(small.is_anothers(start + kPatience + kHold - 1)) << start;
    EXPECT_FALSE(small.is_anothers(start + kPatience + kHold)) << start;
  }
}

TEST(MessageTurn, GoesToWhoeverHasWaitedLongest) {
  MessageTurns turns;
  MessageTurn first(turns);
  MessageTurn second(turns);
  std::int64_t now = kStart;
  first.wait(now);
  first.wait(now += kPatience);
  // The first is stopped: the second takes the turn when it has lapsed.
  second.wait(now);
  second.wait(now += kPatience);
  EXPECT_TRUE(second.is_anothers(now));
  second.wait(now += kHold);
  EXPECT_FALSE(second.is_anothers(now));
  EXPECT_TRUE(first.is_anothers(now));
  // It goes on, and is older.
  first.wait(now);
  EXPECT_TRUE(second.is_anothers(now));
  second.wait(now);
  EXPECT_FALSE(first.is_anothers(now));
  EXPECT_TRUE(first.done());
  second.wait(now);
  EXPECT_TRUE(first.is_anothers(now));
}

TEST(MessageTurn, IsGivenBackForARestAfterItsLongest) {
  MessageTurns turns;
  MessageTurn large(turns);
  const MessageTurn small(turns);
  std::int64_t now = kStart;
  large.wait(now);
  bool gave_back = false;
  for (int i = 0; i < 1000 && !gave_back; ++i) gave_back = large.wait(now += kPatience);
  ASSERT_TRUE(gave_back);
  EXPECT_GE(now - kStart, MessageTurn::kLongest);
  EXPECT_FALSE(small.is_anothers(now));
  large.wait(now + MessageTurn::kRest - 1);
  EXPECT_FALSE(small.is_anothers(now + MessageTurn::kRest - 1));
  large.wait(now + MessageTurn::kRest);
  EXPECT_TRUE(small.is_anothers(now + MessageTurn::kRest));
}

}  // namespace
}  // namespace gristmill
