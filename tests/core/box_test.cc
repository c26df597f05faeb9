#include "core/box.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "core/segment.h"
#include "tests/core/forked.h"

namespace gristmill {
namespace {

using namespace std::chrono_literals;
using Outcome = Box::PublishOutcome;

constexpr std::size_t kWords = 1500;  // per field: several pages, so that a torn copy is a wide target

FieldSpecs two_fields() {
  const auto words = static_cast<std::int64_t>(kWords);
  return {{"first", DType::kInt64, {words}}, {"second", DType::kInt64, {words / 3, 3}}};
}

std::unique_ptr<Box> make_box(const FieldSpecs& spec = two_fields()) {
  static std::atomic<int> number{0};
  return Box::create(segment_name("box-test", "box" + std::to_string(number++)), spec);
}

// A version whose every word follows from one tag; a mixture of two is noticed wherever it is.
struct Content {
  std::vector<std::int64_t> first, second;

  Content() : first(kWords), second(kWords) {}
  explicit Content(std::int64_t tag) : Content() {
    for (std::size_t i = 0; i < kWords; ++i) {
      first[i] = tag * 1'000'003 + static_cast<std::int64_t>(i);
      second[i] = tag * 1'000'033 - static_cast<std::int64_t>(i);
    }
  }
  std::array<const std::byte*, 2> fields() const {
    return {reinterpret_cast<const std::byte*>(first.data()),
            reinterpret_cast<const std::byte*>(second.data())};
  }
  std::array<std::byte*, 2> out() {
    return {reinterpret_cast<std::byte*>(first.data()), reinterpret_cast<std::byte*>(second.data())};
  }
};

// The tag of a whole version, or -1 when it is torn. Version 0 (zeros) has no tag: 0.
std::int64_t tag_of(const std::int64_t* first, const std::int64_t* second) {
  const std::int64_t tag = first[0] / 1'000'003;
  if (tag == 0) {
    for (std::size_t i = 0; i < kWords; ++i) {
      if (first[i] != 0 || second[i] != 0) return -1;
    }
    return 0;
  }
  for (std::size_t i = 0; i < kWords; ++i) {
    if (first[i] != tag * 1'000'003 + static_cast<std::int64_t>(i)) return -1;
    if (second[i] != tag * 1'000'033 - static_cast<std::int64_t>(i)) return -1;
  }
  return tag;
}

std::int64_t tag_of(const Box::Pin& pin) {
  return tag_of(reinterpret_cast<const std::int64_t*>(pin.field(0)),
                reinterpret_cast<const std::int64_t*>(pin.field(1)));
}

std::int64_t read_tag(Box& box, std::uint64_t* version = nullptr) {
  Content content;
  const std::uint64_t read = box.read_into(content.out());
  if (version != nullptr) *version = read;
  return tag_of(content.first.data(), content.second.data());
}

Box::PublishResult publish(Box& box, std::int64_t tag, std::chrono::milliseconds patience = 20s) {
  const Content content(tag);
  return box.publish(content.fields(), Deadline::in(patience));
}

// Publishes version v with tag v until it is killed. One writer at a time may do this.
[[noreturn]] void publish_for_ever(Box& box) {
  Content content;
  while (true) {
    content = Content(static_cast<std::int64_t>(box.version()) + 1);
    box.publish(content.fields(), Deadline::never());
  }
}

TEST(Box, BeginsWithVersionZeroAllZeros) {
  const auto box = make_box();
  EXPECT_EQ(box->version(), 0u);
  std::uint64_t version = 99;
  EXPECT_EQ(read_tag(*box, &version), 0);
  EXPECT_EQ(version, 0u);
}

TEST(Box, EveryPublishIsTheNextVersionAndIsWhatReadersSee) {
  const auto box = make_box();
  for (std::uint64_t v = 1; v <= 20; ++v) {
    const auto result = publish(*box, static_cast<std::int64_t>(v));
    ASSERT_EQ(result.outcome, Outcome::kOk);
    ASSERT_EQ(result.version, v);
    ASSERT_EQ(box->version(), v);
    std::uint64_t read = 0;
    ASSERT_EQ(read_tag(*box, &read), static_cast<std::int64_t>(v));
    ASSERT_EQ(read, v);
    const Box::Pin pin = box->pin();
    ASSERT_EQ(pin.version(), v);
    ASSERT_EQ(tag_of(pin), static_cast<std::int64_t>(v));
  }
}

TEST(Box, AttachedElsewhereHasTheSameSpecAndVersions) {
  const FieldSpecs spec = {{"weights", DType::kFloat32, {3, 5}},
                           {"a long name", DType::kBFloat16, {}},
                           {"empty", DType::kFloat64, {0, 4}},
                           {"deep", DType::kUInt8, {1, 2, 1, 2, 1, 2, 1, 2}}};
  FieldSpecs legal = spec;
  legal[1].name.resize(kMaxFieldName, 'x');
  const auto box = make_box(legal);
  const auto other = Box::attach(box->name(), Deadline::in(5s));
  EXPECT_EQ(other->spec(), legal);
  std::array<float, 15> weights;
  weights.fill(1.5f);
  const std::array<std::byte, 16> rest{};
  const std::array<const std::byte*, 4> fields = {reinterpret_cast<const std::byte*>(weights.data()),
                                                  rest.data(), nullptr, rest.data()};
  ASSERT_EQ(box->publish(fields, Deadline::never()).outcome, Outcome::kOk);
  std::array<float, 15> read{};
  const std::array<std::byte*, 4> out = {reinterpret_cast<std::byte*>(read.data()), nullptr, nullptr,
                                         nullptr};
  EXPECT_EQ(other->read_into(out), 1u);
  EXPECT_EQ(read, weights);
}

TEST(Box, FieldsAreAlignedToCacheLines) {
  const auto box = make_box({{"odd", DType::kUInt8, {13}}, {"next", DType::kFloat32, {1}}});
  const Box::Pin pin = box->pin();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pin.field(0)) % 64, 0u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pin.field(1)) % 64, 0u);
}

TEST(Box, BytesNeededIsWhatCreateTakes) {
  const auto box = make_box();
  for (const SegmentInfo& info : list_segments()) {
    if ("/" + info.name == box->name() || info.name == box->name()) {
      EXPECT_EQ(info.bytes, Box::bytes_needed(two_fields()));
      return;
    }
  }
  FAIL() << box->name() << " is not listed";
}

TEST(Box, RefusesTheWrongNumberOfFieldsAndABadIndexByName) {
  const auto box = make_box();
  const std::array<const std::byte*, 1> one = {nullptr};
  EXPECT_THROW(box->publish(one, Deadline::now()), std::invalid_argument);
  const std::array<std::byte*, 3> three = {};
  EXPECT_THROW(box->read_into(three), std::invalid_argument);
  Box::Pin pin = box->pin();
  EXPECT_THROW(pin.field(2), std::out_of_range);
  pin.release();
  EXPECT_THROW(pin.field(0), std::logic_error);
  EXPECT_EQ(box->version(), 0u);
}

TEST(Box, RefusesABadSpec) {
  EXPECT_THROW(make_box({}), std::invalid_argument);
  EXPECT_THROW(make_box({{"x", DType::kFloat32, {-1}}}), std::invalid_argument);
}

TEST(Box, APinStaysAsItIsWhileVersionsPassBy) {
  const auto box = make_box();
  publish(*box, 1);
  Box::Pin pin = box->pin();
  for (int v = 2; v <= 50; ++v) ASSERT_EQ(publish(*box, v).outcome, Outcome::kOk);
  EXPECT_EQ(pin.version(), 1u);
  EXPECT_EQ(tag_of(pin), 1);
  EXPECT_EQ(tag_of(box->pin()), 50);
}

TEST(Box, MovingAPinMovesItsHold) {
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

TEST(Box, WithEveryOtherSlotPinnedAPublishChangesNothingAndIsCounted) {
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

TEST(Box, HoldsAtMostItsNumberOfPinsAndSaysSo) {
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

TEST(Box, PinsOfThreadsAreNeverTornByAWriterWithoutPause) {
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

TEST(Box, PinsOfProcessesAreNeverTornByAWriterWithoutPause) {
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

TEST(Box, WritersInSeveralProcessesTakeTurns) {
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

TEST(Box, WatchWakesOnTheNextVersion) {
  const auto box = make_box();
  const SharedWithChildren<std::atomic<int>> watching;
  Forked watcher([&] {
    std::uint64_t seen = 0;
    for (int i = 0; i < 100; ++i) {
      *watching = i + 1;
      const auto next = box->watch(seen, Deadline::in(30s));
      if (!next || *next <= seen) return 1;
      seen = *next;
      if (seen == 100) return 0;
    }
    return 2;
  });
  for (int v = 1; v <= 100; ++v) {
    ASSERT_TRUE(eventually([&] { return *watching >= v; }));
    ASSERT_EQ(publish(*box, v).outcome, Outcome::kOk);
  }
  EXPECT_TRUE(watcher.succeeds());
}

TEST(Box, WatchGivesUpAtItsDeadlineAndReturnsAtOnceForAnOldVersion) {
  const auto box = make_box();
  EXPECT_EQ(box->watch(0, Deadline::in(20ms)), std::nullopt);
  publish(*box, 1);
  EXPECT_EQ(box->watch(0, Deadline::now()), 1u);
  EXPECT_EQ(box->watch(1, Deadline::now()), std::nullopt);
}

TEST(Box, AForkedChildHasNoShareInItsParentsPin) {
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

TEST(Box, AKilledReadersPinNoLongerCounts) {
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

TEST(Box, AStoppedReaderKeepsItsSlotAndTheOthersGoOn) {
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

TEST(Box, FourStoppedPinnersKeepAllSlotsUntilOneIsGone) {
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

TEST(Box, AWriterKilledAtRandomTimesLeavesNothingTornAndNobodyBlocked) {
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

TEST(Box, AttachRefusesADamagedSegmentAndNeverCrashesOnOne) {
  const std::size_t page = Segment::kHeaderBytes;
  const auto bytes = Box::bytes_needed(two_fields()) - 8 * kWords * 2 * Box::kSlots;
  std::mt19937_64 random(3);
  int refused = 0, accepted = 0;
  for (std::size_t at = 0; at + 8 < std::min<std::size_t>(bytes - page, 24000); at += at < 512 ? 8 : 512) {
    for (const std::uint64_t value : {~std::uint64_t{0}, std::uint64_t{7}, random()}) {
      const auto box = make_box();
      const int fd = ::shm_open(box->name().c_str(), O_RDWR, 0);
      ASSERT_GE(fd, 0);
      ASSERT_EQ(::pwrite(fd, &value, sizeof value, static_cast<off_t>(page + at)), 8);
      ::close(fd);
      try {
        const auto other = Box::attach(box->name(), Deadline::in(1s));
        ++accepted;
        publish(*other, 1, 1ms);
        other->watch(0, Deadline::in(1ms));
        const Box::Pin pin = other->pin();
        tag_of(pin);
      } catch (const SegmentError& error) {
        EXPECT_EQ(error.reason(), SegmentError::Reason::kCorrupt) << error.what();
        EXPECT_THAT(error.what(), testing::HasSubstr(box->name()));
        ++refused;
      } catch (const std::runtime_error&) {
      }
    }
  }
  EXPECT_GT(refused, 5);
  EXPECT_GT(accepted, 5);
}

TEST(Box, DamageUnderAnAttachedBoxIsAnErrorNotACrash) {
  const auto box = make_box();
  const int fd = ::shm_open(box->name().c_str(), O_RDWR, 0);
  const std::uint64_t bad = 9 << 3 | 6;
  // The newest word has a cache line of its own, the second.
  ASSERT_EQ(::pwrite(fd, &bad, sizeof bad, Segment::kHeaderBytes + 64), 8);
  ::close(fd);
  EXPECT_EQ(box->version(), 9u);
  EXPECT_EQ(publish(*box, 1).outcome, Outcome::kBroken);
  EXPECT_THROW(box->pin(), std::runtime_error);
  EXPECT_THROW(Box::attach(box->name(), Deadline::in(1s)), SegmentError);
}

}  // namespace
}  // namespace gristmill
