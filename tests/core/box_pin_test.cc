// Pins: a version in place, however many pass by.

#include "core/box.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "tests/core/box_fixture.h"
#include "tests/core/forked.h"

namespace gristmill {
namespace {

using namespace box_test;

TEST(BoxPin, APinStaysAsItIsWhileVersionsPassBy) {
  const auto box = make_box();
  publish(*box, 1);
  Box::Pin pin = box->pin();
  for (int v = 2; v <= 50; ++v) ASSERT_EQ(publish(*box, v).outcome, Outcome::kOk);
  EXPECT_EQ(pin.version(), 1u);
  EXPECT_EQ(tag_of(pin), 1);
  EXPECT_EQ(tag_of(box->pin()), 50);
}

TEST(BoxPin, MovingAPinMovesItsHold) {
  const auto box = make_box();
  publish(*box, 1);
  Box::Pin pin = box->pin();
  Box::Pin moved = std::move(pin);
  EXPECT_FALSE(pin);
  EXPECT_TRUE(moved);
  publish(*box, 2);
  moved = box->pin();
  EXPECT_EQ(tag_of(moved), 2);
}

TEST(BoxPin, WithEveryOtherSlotPinnedAPublishChangesNothingAndIsCounted) {
  const auto box = make_box();
  std::vector<Box::Pin> pins;
  for (int v = 1; v <= Box::kSlots; ++v) {
    ASSERT_EQ(publish(*box, v).outcome, Outcome::kOk);
    pins.push_back(box->pin());
  }
  const auto refused = publish(*box, 5);
  EXPECT_EQ(refused.outcome, Outcome::kNoFreeSlot);
  EXPECT_EQ(box->skipped_publishes(), 1u);
  EXPECT_EQ(box->version(), 4u);
  for (int v = 1; v <= Box::kSlots; ++v) EXPECT_EQ(tag_of(pins[static_cast<std::size_t>(v - 1)]), v);

  pins[1].release();
  EXPECT_EQ(publish(*box, 5).outcome, Outcome::kOk);
  EXPECT_EQ(box->version(), 5u);
  EXPECT_EQ(tag_of(pins[0]), 1);
}

TEST(BoxPin, HoldsAtMostItsNumberOfPinsAndSaysSo) {
  const auto box = make_box();
  std::vector<Box::Pin> pins;
  for (int i = 0; i < Box::kMaxReaders; ++i) pins.push_back(box->pin());
  try {
    box->pin();
    FAIL() << "one pin too many was given";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("256 pins"));
  }
  pins.pop_back();
  EXPECT_TRUE(box->pin());
}

TEST(BoxPin, PinsOfThreadsAreNeverTornByAWriterWithoutPause) {
  const auto box = make_box();
  std::atomic<bool> done{false};
  std::atomic<int> torn{0}, backwards{0};
  std::atomic<std::uint64_t> reads{0};
  std::vector<std::thread> readers;
  for (int r = 0; r < 3; ++r) {
    readers.emplace_back([&, r] {
      std::uint64_t last = 0;
      while (!done) {
        std::uint64_t version = 0;
        std::int64_t tag = 0;
        if (r == 0) {
          tag = read_tag(*box, &version);
        } else {
          const Box::Pin pin = box->pin();
          version = pin.version();
          tag = tag_of(pin);
          if (tag != tag_of(pin)) tag = -1;
        }
        if (tag != static_cast<std::int64_t>(version)) ++torn;
        if (version < last) ++backwards;
        last = version;
        ++reads;
      }
    });
  }
  std::int64_t published = 0;
  const Deadline end = Deadline::in(1500ms);
  while (!end.passed() || reads < 300) {
    if (publish(*box, published + 1).outcome == Outcome::kOk) ++published;
  }
  done = true;
  for (auto& reader : readers) reader.join();
  EXPECT_EQ(torn, 0);
  EXPECT_EQ(backwards, 0);
  EXPECT_EQ(box->version(), static_cast<std::uint64_t>(published));
  EXPECT_GT(published, 100);
}

TEST(BoxPin, ReadsOfEverySizeSucceedUnderAWriterWithoutPause) {
  // From one word to what is copied past the caches.
  for (const std::size_t bytes :
       {std::size_t{8}, std::size_t{4096}, std::size_t{1} << 20, std::size_t{26} << 20}) {
    const std::size_t words = bytes / 8;
    const auto box = make_box({{"data", DType::kInt64, {static_cast<std::int64_t>(words)}}});
    const auto read_only = Box::attach(box->name(), Deadline::in(5s), Box::Access::kReadOnly);
    std::atomic<bool> done{false};
    std::atomic<int> reading{2};
    std::thread writer([&] {
      std::vector<std::int64_t> data(words);
      for (std::int64_t tag = 1; !done; ++tag) {
        std::fill(data.begin(), data.end(), tag);
        if (box->publish(std::array{reinterpret_cast<const std::byte*>(data.data())}, Deadline::in(20s))
                .outcome != Outcome::kOk) {
          --tag;
        }
      }
    });
    std::atomic<int> torn{0};
    std::vector<std::thread> readers;
    for (Box* mine : {box.get(), read_only.get()}) {
      readers.emplace_back([&, mine] {
        std::vector<std::int64_t> data(words);
        const int reads = bytes < (1 << 20) ? 2000 : bytes < (8 << 20) ? 200 : 12;
        for (int i = 0; i < reads; ++i) {
          const auto version = static_cast<std::int64_t>(
              mine->read_into(std::array{reinterpret_cast<std::byte*>(data.data())}));
          if (std::count(data.begin(), data.end(), version) != static_cast<std::ptrdiff_t>(words)) ++torn;
        }
        if (--reading == 0) done = true;
      });
    }
    for (std::thread& reader : readers) reader.join();
    writer.join();
    EXPECT_EQ(torn, 0) << bytes << " bytes";
  }
}

TEST(BoxPin, PinsOfProcessesAreNeverTornByAWriterWithoutPause) {
  const auto box = make_box();
  struct Shared {
    std::atomic<bool> done{false};
    std::atomic<std::uint64_t> reads{0};
  };
  const SharedWithChildren<Shared> shared;
  std::vector<Forked> readers;
  for (int r = 0; r < 2; ++r) {
    readers.emplace_back([&] {
      const auto mine = Box::attach(box->name(), Deadline::in(10s));
      while (!shared->done) {
        const Box::Pin pin = mine->pin();
        if (tag_of(pin) != static_cast<std::int64_t>(pin.version())) return 1;
        ++shared->reads;
      }
      return 0;
    });
  }
  Forked writer([&]() -> int { publish_for_ever(*box); });
  EXPECT_TRUE(eventually([&] { return shared->reads > 3000 && box->version() > 1000; }));
  shared->done = true;
  for (Forked& reader : readers) EXPECT_TRUE(reader.succeeds());
}

TEST(BoxPin, AForkedChildHasNoShareInItsParentsPin) {
  const auto box = make_box();
  publish(*box, 1);
  Box::Pin pin = box->pin();
  Forked child([&] {
    try {
      pin.field(0);
      return 1;
    } catch (const std::logic_error&) {
    }
    pin.release();
    return tag_of(box->pin()) == 1 ? 0 : 2;  // one of its own works
  });
  EXPECT_TRUE(child.succeeds());
  for (int v = 2; v <= 20; ++v) publish(*box, v);
  EXPECT_EQ(tag_of(pin), 1);
}

}  // namespace
}  // namespace gristmill
