// A process that publishes or pins is killed or stopped at each of its instructions that matter.

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "core/box.h"
#include "core/fault_point.h"
#include "core/segment.h"
#include "tests/core/forked.h"

#ifdef GRISTMILL_FAULT_POINTS

namespace gristmill {
namespace {

using namespace std::chrono_literals;
using Outcome = Box::PublishOutcome;

constexpr std::size_t kWords = 600;
using Values = std::vector<std::int64_t>;

class BoxFault : public testing::Test {
 protected:
  BoxFault() {
    static int number = 0;
    const FieldSpec field{"a", DType::kInt64, {static_cast<std::int64_t>(kWords)}};
    FieldSpecs spec(3, field);
    spec[1].name = "b";
    spec[2].name = "c";
    box_ = Box::create(segment_name("box-fault-test", "box" + std::to_string(number++)), spec);
  }

  // Three equal fields: a mixture of two versions is noticed.
  Outcome publish(std::int64_t tag, std::chrono::milliseconds patience = 20s) {
    const Values values(kWords, tag);
    const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
    return box_->publish(std::array{bytes, bytes, bytes}, Deadline::in(patience)).outcome;
  }
  // -1: torn.
  std::int64_t read(std::uint64_t* version = nullptr) {
    std::array<Values, 3> values{Values(kWords), Values(kWords), Values(kWords)};
    std::array<std::byte*, 3> out{};
    for (std::size_t f = 0; f < 3; ++f) out[f] = reinterpret_cast<std::byte*>(values[f].data());
    const std::uint64_t is = box_->read_into(out);
    if (version != nullptr) *version = is;
    for (const Values& field : values) {
      if (field != Values(kWords, values[0][0])) return -1;
    }
    return values[0][0];
  }
  std::vector<std::string> points_of(const std::function<void()>& body) {
    fault::start_recording();
    body();
    return fault::stop_recording();
  }

  std::unique_ptr<Box> box_;
};

TEST_F(BoxFault, AWriterKilledAtAnyPointLeavesTheOldVersionOrTheNew) {
  std::int64_t tag = 1;
  const auto points = points_of([&] { ASSERT_EQ(publish(tag), Outcome::kOk); });
  ASSERT_GE(points.size(), 6u);
  for (const std::string& point : points) {
    for (int pass = 1; pass <= (point == "box.publish.field_copied" ? 3 : 1); ++pass) {
      const std::uint64_t before = box_->version();
      Forked writer([&] {
        fault::arm(point, fault::Action::kKill, pass);
        publish(tag + 1);
        return 0;
      });
      ASSERT_TRUE(writer.dies_of(SIGKILL)) << point;
      const std::uint64_t after = box_->version();
      ASSERT_TRUE(after == before || after == before + 1) << point;
      ASSERT_EQ(read(), after == before ? tag : tag + 1) << point;
      tag += 2;
      ASSERT_EQ(publish(tag), Outcome::kOk) << point;
      ASSERT_EQ(box_->version(), after + 1) << point;
      ASSERT_EQ(read(), tag) << point;
    }
  }
}

TEST_F(BoxFault, AReaderKilledAtAnyPointHoldsNoSlotForLong) {
  std::int64_t tag = 1;
  ASSERT_EQ(publish(tag), Outcome::kOk);
  const auto points = points_of([&] { ASSERT_EQ(read(), tag); });
  ASSERT_GE(points.size(), 4u);
  for (int round = 0; round < 4; ++round) {
    for (const std::string& point : points) {
      Forked reader([&] {
        fault::arm(point, fault::Action::kKill);
        read();
        return 0;
      });
      ASSERT_TRUE(reader.dies_of(SIGKILL)) << point;
      ASSERT_EQ(publish(++tag), Outcome::kOk) << point;
      ASSERT_EQ(read(), tag) << point;
    }
  }
  EXPECT_EQ(box_->skipped_publishes(), 0u);
}

TEST_F(BoxFault, TheLeasesOfTheKilledServeNewReaders) {
  ASSERT_EQ(publish(1), Outcome::kOk);
  for (int i = 0; i < Box::kMaxReaders + 20; ++i) {
    Forked reader([&] {
      fault::arm("box.pin.stored", fault::Action::kKill);
      const Box::Pin pin = box_->pin();
      return 0;
    });
    ASSERT_TRUE(reader.dies_of(SIGKILL));
  }
  std::vector<Box::Pin> pins;
  for (int i = 0; i < Box::kMaxReaders; ++i) pins.push_back(box_->pin());
  EXPECT_THROW(box_->pin(), std::runtime_error);
}

TEST_F(BoxFault, AWriterKilledWhileItReclaimsADeadPinLeavesItReclaimable) {
  std::int64_t tag = 0;
  for (int v = 1; v <= Box::kSlots; ++v) {
    ASSERT_EQ(publish(++tag), Outcome::kOk);
    Forked reader([&] {
      fault::arm("box.read.field_copied", fault::Action::kKill);
      read();
      return 0;
    });
    ASSERT_TRUE(reader.dies_of(SIGKILL));
  }
  Forked writer([&] {
    fault::arm("box.reclaim.taken", fault::Action::kKill);
    publish(tag + 1);
    return 0;
  });
  ASSERT_TRUE(writer.dies_of(SIGKILL));
  EXPECT_EQ(read(), tag);
  for (int v = 0; v < 20; ++v) {
    ASSERT_EQ(publish(++tag), Outcome::kOk);
    ASSERT_EQ(read(), tag);
  }
}

TEST_F(BoxFault, AStoppedWriterDelaysOtherWritersUntilTheirDeadlineButNoReader) {
  ASSERT_EQ(publish(1), Outcome::kOk);
  Forked writer([&] {
    fault::arm("box.publish.field_copied", fault::Action::kStop);
    return publish(2) == Outcome::kOk ? 0 : 1;
  });
  ASSERT_TRUE(writer.wait_stopped());
  EXPECT_EQ(publish(3, 50ms), Outcome::kTimedOut);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(read(), 1);
  writer.signal(SIGCONT);
  EXPECT_TRUE(writer.succeeds());
  EXPECT_EQ(read(), 2);
  EXPECT_EQ(publish(3), Outcome::kOk);
  EXPECT_EQ(box_->version(), 3u);
}

// The window of the argument in box.cc: the reader has read the newest word, and stops before its
// pin counts; meanwhile the slot it has in mind is overwritten.
TEST_F(BoxFault, AReaderStoppedBeforeItsPinCountsStartsOver) {
  std::int64_t tag = 1;  // always the version
  ASSERT_EQ(publish(tag), Outcome::kOk);
  for (const char* point : {"box.pin.claimed", "box.pin.loaded", "box.pin.stored"}) {
    Forked reader([&] {
      fault::arm(point, fault::Action::kStop);
      std::uint64_t version = 0;
      const std::int64_t content = read(&version);
      return content == static_cast<std::int64_t>(version) ? 0 : 1;
    });
    ASSERT_TRUE(reader.wait_stopped()) << point;
    for (int i = 0; i < 31; ++i) ASSERT_EQ(publish(++tag), Outcome::kOk);
    reader.signal(SIGCONT);
    EXPECT_TRUE(reader.succeeds()) << point;
  }
}

}  // namespace
}  // namespace gristmill

#endif
