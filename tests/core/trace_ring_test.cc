#include "core/trace_ring.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>

namespace gristmill {
namespace {

struct Ring {
  std::atomic<std::uint64_t> written{0};
  std::array<TraceSlot, 8> slots{};
  TraceRing view{&written, slots.data(), slots.size()};

  // Every word of a span follows from its number.
  void push(std::uint64_t i) { view.push({i, 2 * i, Measure::kCopy, 3 * i}); }
};

TEST(TraceRing, GivesBackTheSpansInOrder) {
  Ring ring;
  ring.push(10);
  ring.view.push({20, 7, Measure::kPublish, 42});
  const TraceRing::Read read = ring.view.read(0);
  ASSERT_EQ(read.spans.size(), 2u);
  EXPECT_EQ(read.next, 2u);
  EXPECT_EQ(read.lost, 0u);
  EXPECT_EQ(read.spans[0].begin_ns, 10u);
  EXPECT_EQ(read.spans[0].duration_ns, 20u);
  EXPECT_EQ(read.spans[1].stage, Measure::kPublish);
  EXPECT_EQ(read.spans[1].argument, 42u);
  EXPECT_TRUE(ring.view.read(read.next).spans.empty());
}

TEST(TraceRing, CountsWhatWasOverwrittenBeforeItWasRead) {
  Ring ring;
  for (std::uint64_t i = 0; i < 20; ++i) ring.push(i);
  const TraceRing::Read read = ring.view.read(3);
  EXPECT_EQ(read.lost, 9u);
  ASSERT_EQ(read.spans.size(), 8u);
  EXPECT_EQ(read.spans.front().begin_ns, 12u);
  EXPECT_EQ(read.next, 20u);
}

TEST(TraceRing, AReaderThatIsAheadStartsAtTheEnd) {
  Ring ring;
  ring.push(1);
  const TraceRing::Read read = ring.view.read(99);
  EXPECT_TRUE(read.spans.empty());
  EXPECT_EQ(read.next, 1u);
}

TEST(TraceRing, LeavesOutASpanThatIsHalfWritten) {
  Ring ring;
  ring.push(1);
  ring.push(2);
  ring.slots[0].number = 0;
  const TraceRing::Read read = ring.view.read(0);
  EXPECT_EQ(read.lost, 1u);
  ASSERT_EQ(read.spans.size(), 1u);
  EXPECT_EQ(read.spans[0].begin_ns, 2u);
}

TEST(TraceRing, AnyBytesAreReadableWithoutACrash) {
  Ring ring;
  ring.written = ~std::uint64_t{0};
  for (TraceSlot& slot : ring.slots) slot.number = slot.what = ~std::uint64_t{0};
  EXPECT_LE(ring.view.read(0).spans.size(), 8u);
  EXPECT_LE(ring.view.read(~std::uint64_t{0} - 4).spans.size(), 8u);
}

TEST(TraceRing, ASpanIsNeverAMixtureOfTwoWhileTheWriterRunsOn) {
  Ring ring;
  std::atomic<bool> done{false};
  std::thread writer([&] {
    for (std::uint64_t i = 0; !done; ++i) ring.push(i);
  });
  std::uint64_t from = 0;
  for (int whole = 0; whole < 20'000;) {
    const TraceRing::Read read = ring.view.read(from);
    from = read.next;
    for (const TraceSpan& span : read.spans) {
      ASSERT_EQ(span.duration_ns, 2 * span.begin_ns);
      ASSERT_EQ(span.argument, 3 * span.begin_ns);
      ++whole;
    }
  }
  done = true;
  writer.join();
}

}  // namespace
}  // namespace gristmill
