// Processes that are killed or stopped while they write, or pin.

#include "core/box.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <vector>

#include "tests/core/box_fixture.h"
#include "tests/core/forked.h"

namespace gristmill {
namespace {

using namespace box_test;

TEST(BoxDeath, AKilledReadersPinNoLongerCounts) {
  const auto box = make_box();
  for (int round = 0; round < 3; ++round) {
    std::vector<Forked> pinners;
    for (int v = 1; v <= Box::kSlots; ++v) {
      const std::int64_t tag = 1 + static_cast<std::int64_t>(box->version());
      ASSERT_EQ(publish(*box, tag).outcome, Outcome::kOk);
      const SharedWithChildren<std::atomic<bool>> pinned;
      pinners.emplace_back([&]() -> int {
        const Box::Pin pin = box->pin();
        *pinned = true;
        while (true) ::pause();
      });
      ASSERT_TRUE(eventually([&] { return pinned->load(); }));
    }
    ASSERT_EQ(publish(*box, 1).outcome, Outcome::kNoFreeSlot);
    pinners[0].kill();
    const std::int64_t tag = 1 + static_cast<std::int64_t>(box->version());
    ASSERT_EQ(publish(*box, tag).outcome, Outcome::kOk);
    EXPECT_EQ(read_tag(*box), tag);
  }
}

TEST(BoxDeath, AStoppedReaderKeepsItsSlotAndTheOthersGoOn) {
  const auto box = make_box();
  publish(*box, 1);
  const SharedWithChildren<std::atomic<int>> step;
  Forked reader([&] {
    const Box::Pin pin = box->pin();
    *step = 1;
    while (*step != 2) ::usleep(1000);
    return pin.version() == 1 && tag_of(pin) == 1 ? 0 : 1;
  });
  ASSERT_TRUE(eventually([&] { return *step == 1; }));
  ASSERT_TRUE(reader.stop());
  for (int v = 2; v <= 200; ++v) {
    ASSERT_EQ(publish(*box, v).outcome, Outcome::kOk);
    ASSERT_EQ(read_tag(*box), v);
  }
  *step = 2;
  reader.signal(SIGCONT);
  EXPECT_TRUE(reader.succeeds());
}

TEST(BoxDeath, FourStoppedPinnersKeepAllSlotsUntilOneIsGone) {
  const auto box = make_box();
  std::vector<Forked> pinners;
  for (int v = 1; v <= Box::kSlots; ++v) {
    ASSERT_EQ(publish(*box, v).outcome, Outcome::kOk);
    const SharedWithChildren<std::atomic<bool>> pinned;
    pinners.emplace_back([&]() -> int {
      const Box::Pin pin = box->pin();
      *pinned = true;
      while (true) ::pause();
    });
    ASSERT_TRUE(eventually([&] { return pinned->load(); }));
    ASSERT_TRUE(pinners.back().stop());
  }
  EXPECT_EQ(publish(*box, 5).outcome, Outcome::kNoFreeSlot);
  EXPECT_EQ(publish(*box, 5).outcome, Outcome::kNoFreeSlot);
  EXPECT_EQ(box->skipped_publishes(), 2u);
  EXPECT_EQ(read_tag(*box), 4);  // readers do not mind
  pinners[2].kill();
  EXPECT_EQ(publish(*box, 5).outcome, Outcome::kOk);
  EXPECT_EQ(read_tag(*box), 5);
}

TEST(BoxDeath, AWriterKilledAtRandomTimesLeavesNothingTornAndNobodyBlocked) {
  const auto box = make_box();
  struct Shared {
    std::atomic<bool> done{false};
    std::atomic<std::uint64_t> reads{0};
  };
  const SharedWithChildren<Shared> shared;
  Forked reader([&] {
    while (!shared->done) {
      const Box::Pin pin = box->pin();
      if (tag_of(pin) != static_cast<std::int64_t>(pin.version())) return 1;
      ++shared->reads;
    }
    return 0;
  });
  std::mt19937 random(7);
  std::uint64_t last = 0;
  for (int kill = 0; kill < 150; ++kill) {
    Forked writer([&]() -> int { publish_for_ever(*box); });
    ::usleep(static_cast<useconds_t>(random() % 3000));
    writer.kill();
    const std::uint64_t version = box->version();
    ASSERT_GE(version, last);
    const std::uint64_t reads = shared->reads;
    const auto next = publish(*box, static_cast<std::int64_t>(version) + 1);
    ASSERT_EQ(next.outcome, Outcome::kOk) << "after kill " << kill;
    ASSERT_EQ(next.version, version + 1);
    ASSERT_EQ(read_tag(*box), static_cast<std::int64_t>(next.version));
    ASSERT_TRUE(eventually([&] { return shared->reads > reads; })) << "the reader is blocked";
    last = next.version;
  }
  shared->done = true;
  EXPECT_TRUE(reader.succeeds());
}

TEST(BoxDeath, WritersInSeveralProcessesTakeTurns) {
  const auto box = make_box();
  std::vector<Forked> writers;
  for (int w = 1; w <= 3; ++w) {
    writers.emplace_back([&, w] {
      for (int i = 0; i < 400; ++i) {
        if (publish(*box, w * 1000 + i).outcome != Outcome::kOk) return 1;
        if (read_tag(*box) < 1000) return 2;
      }
      return 0;
    });
  }
  for (Forked& writer : writers) EXPECT_TRUE(writer.succeeds());
  EXPECT_EQ(box->version(), 1200u);
}

}  // namespace
}  // namespace gristmill
