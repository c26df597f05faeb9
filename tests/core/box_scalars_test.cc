// Scalars, updates across scalars and arrays, and writes that exclude others.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <bit>
#include <limits>
#include <thread>
#include <vector>

#include "core/box.h"
#include "core/fault_point.h"
#include "core/segment.h"
#include "tests/core/box_scalars_fixture.h"
#include "tests/core/forked.h"

namespace gristmill {
namespace {

using namespace std::chrono_literals;
using Outcome = Box::PublishOutcome;

using box_test::BoxScalars;
using box_test::kElements;
using box_test::scalars;

TEST_F(BoxScalars, BeginAtZeroAndKeepWhatIsWritten) {
  EXPECT_FALSE(box_->read_bool(0));
  EXPECT_EQ(box_->read_int(1), 0);
  EXPECT_EQ(box_->read_float(2), 0.0);
  EXPECT_EQ(box_->read_text(3), "");
  EXPECT_EQ(box_->write_bool(0, true, Deadline::never()).version, 1u);
  EXPECT_EQ(box_->write_int(1, std::numeric_limits<std::int64_t>::min(), Deadline::never()).version, 2u);
  EXPECT_EQ(box_->write_float(2, -0.25, Deadline::never()).version, 3u);
  EXPECT_EQ(box_->write_text(3, "twenty-one bytes long", Deadline::never()).version, 4u);
  EXPECT_EQ(box_->write_text(4, std::string_view("\0\1\2", 3), Deadline::never()).version, 5u);
  const auto other = Box::attach(box_->name(), Deadline::in(5s));
  EXPECT_EQ(other->scalars(), scalars());
  EXPECT_TRUE(other->read_bool(0));
  EXPECT_EQ(other->read_int(1), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(other->read_float(2), -0.25);
  EXPECT_EQ(other->read_text(3), "twenty-one bytes long");
  EXPECT_EQ(other->read_text(4), std::string("\0\1\2", 3));
  box_->write_text(3, "short", Deadline::never());
  EXPECT_EQ(other->read_text(3), "short");
}

TEST_F(BoxScalars, RefuseAnotherTypeAndALongerTextByName) {
  try {
    box_->write_int(2, 1, Deadline::never());
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("field 'rate' is a float, not a int"));
  }
  EXPECT_THROW(box_->read_text(0), std::invalid_argument);
  try {
    box_->write_text(3, "twenty-two bytes long.", Deadline::never());
    FAIL();
  } catch (const std::length_error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("'phase' holds 21 bytes, but the value has 22"));
  }
  EXPECT_EQ(box_->version(), 0u);
}

TEST_F(BoxScalars, RefuseNamesThatAreThereTwiceAndBadCapacities) {
  const auto create = [](const FieldSpecs& arrays, const ScalarSpecs& specs) {
    Box::create(segment_name("box-scalars-test", "refused"), arrays, specs);
  };
  EXPECT_THROW(create({{"a", DType::kInt8, {}}}, {{"a", ScalarType::kBool, 0}}), std::invalid_argument);
  EXPECT_THROW(create({}, {{"a", ScalarType::kBool, 0}, {"a", ScalarType::kBool, 0}}), std::invalid_argument);
  EXPECT_THROW(create({}, {{"a", ScalarType::kText, 0}}), std::invalid_argument);
  EXPECT_THROW(create({}, {{"a", ScalarType::kText, kMaxScalarCapacity + 1}}), std::invalid_argument);
  EXPECT_THROW(create({}, {{"", ScalarType::kBool, 0}}), std::invalid_argument);
  EXPECT_THROW(create({}, {}), std::invalid_argument);
}

TEST_F(BoxScalars, AScalarsWriteKeepsTheArraysAndAnArraysWriteTheScalars) {
  ASSERT_EQ(update_all(*box_, 5).version, 1u);
  ASSERT_EQ(box_->write_bool(0, true, Deadline::never()).version, 2u);
  EXPECT_EQ(read_all(*box_), 5);
  const std::vector<std::int64_t> data(kElements, 6);
  const std::array arrays = {reinterpret_cast<const std::byte*>(data.data())};
  ASSERT_EQ(box_->publish(arrays, Deadline::never()).version, 3u);
  EXPECT_EQ(box_->read_int(1), 5);
  EXPECT_TRUE(box_->read_bool(0));
}

TEST_F(BoxScalars, ArraysThatAreNotGivenAreCarriedOver) {
  const auto box = Box::create(segment_name("box-scalars-test", "carried"),
                               {{"a", DType::kInt64, {2}}, {"b", DType::kInt64, {}}});
  std::array<std::int64_t, 2> a = {1, 2};
  std::int64_t b = 3;
  const auto* at_a = reinterpret_cast<const std::byte*>(a.data());
  const auto* at_b = reinterpret_cast<const std::byte*>(&b);
  box->publish(std::array{at_a, at_b}, Deadline::never());
  for (b = 4; b < 20; ++b) {
    box->update({}, std::array<const std::byte*, 2>{nullptr, at_b}, Deadline::never());
    std::array<std::int64_t, 2> read_a{};
    std::int64_t read_b = 0;
    box->read_into(
        std::array{reinterpret_cast<std::byte*>(read_a.data()), reinterpret_cast<std::byte*>(&read_b)});
    ASSERT_EQ(read_a, a);
    ASSERT_EQ(read_b, b);
  }
}

TEST_F(BoxScalars, APinStaysWhileScalarsAreWritten) {
  update_all(*box_, 1);
  const Box::Pin pin = box_->pin();
  for (int i = 0; i < 100; ++i) box_->write_int(1, i, Deadline::never());
  const auto* data = reinterpret_cast<const std::int64_t*>(pin.field(0));
  EXPECT_EQ(data[kElements - 1], 1);
  EXPECT_EQ(box_->pin().version(), 101u);
}

TEST_F(BoxScalars, NoReaderOfThreadsSeesAMixtureOfAnUpdate) {
  const auto read_only = Box::attach(box_->name(), Deadline::in(5s), Box::Access::kReadOnly);
  std::atomic<bool> done{false};
  std::atomic<int> mixtures{0}, reads{0};
  std::vector<std::thread> threads;
  for (Box* box : {box_.get(), read_only.get()}) {
    threads.emplace_back([&, box] {
      while (!done) {
        if (read_all(*box) < 0) ++mixtures;
        ++reads;
        std::array<std::uint64_t, 2> words{};  // step and rate, without the array
        box->read_words(box->first_word(1), words);
        if (static_cast<double>(static_cast<std::int64_t>(words[0])) != std::bit_cast<double>(words[1]))
          ++mixtures;
      }
    });
  }
  threads.emplace_back([&] {  // a writer of a scalar between the others
    while (!done) box_->write_bool(0, true, Deadline::never());
  });
  std::int64_t tag = 0;
  for (const Deadline end = Deadline::in(1s); !end.passed() || reads < 200;) update_all(*box_, ++tag);
  done = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(mixtures, 0);
  EXPECT_EQ(read_all(*box_), tag);
}

TEST_F(BoxScalars, WritersInSeveralProcessesLoseNothing) {
  std::vector<Forked> writers;
  for (int w = 0; w < 3; ++w) {
    writers.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) {
        Box::Write write = box_->begin_write(Deadline::in(60s));
        if (write.outcome() != Outcome::kOk) return 1;
        const auto next = static_cast<std::uint64_t>(box_->read_int(1) + 1);
        const Box::Words change{box_->first_word(1), {&next, 1}};
        if (write.commit({&change, 1}, {}).outcome != Outcome::kOk) return 2;
      }
      return 0;
    });
  }
  for (Forked& writer : writers) EXPECT_TRUE(writer.succeeds());
  EXPECT_EQ(box_->read_int(1), 6000);
  EXPECT_EQ(box_->version(), 6000u);
}

TEST_F(BoxScalars, AWriteThatIsNotCommittedLeavesNoTraceAndFreesTheTurn) {
  {
    const Box::Write write = box_->begin_write(Deadline::never());
    ASSERT_EQ(write.outcome(), Outcome::kOk);
    Forked other(
        [&] { return box_->write_int(1, 1, Deadline::in(20ms)).outcome == Outcome::kTimedOut ? 0 : 1; });
    EXPECT_TRUE(other.succeeds());
  }
  EXPECT_EQ(box_->version(), 0u);
  EXPECT_EQ(box_->write_int(1, 1, Deadline::in(1s)).outcome, Outcome::kOk);
  Box::Write write = box_->begin_write(Deadline::never());
  write.release();
  EXPECT_THROW(write.commit({}, {}), std::logic_error);
}

TEST_F(BoxScalars, AWriterKilledInItsWriteFreesTheTurn) {
  Forked writer([&]() -> int {
    const Box::Write write = box_->begin_write(Deadline::never());
    ::raise(SIGKILL);
    return write.outcome() == Outcome::kOk ? 0 : 1;
  });
  ASSERT_TRUE(writer.dies_of(SIGKILL));
  EXPECT_EQ(update_all(*box_, 3).outcome, Outcome::kOk);
  EXPECT_EQ(box_->write_int(1, 3, Deadline::in(5s)).outcome, Outcome::kOk);
}

#ifdef GRISTMILL_FAULT_POINTS

TEST_F(BoxScalars, AnUpdateKilledAtAnyPointLeavesTheOldVersionOrTheNew) {
  std::int64_t tag = 1;
  fault::start_recording();
  ASSERT_EQ(update_all(*box_, tag).outcome, Outcome::kOk);
  ASSERT_EQ(box_->write_bool(0, true, Deadline::never()).outcome, Outcome::kOk);
  const auto points = fault::stop_recording();
  ASSERT_GE(points.size(), 8u);
  for (const std::string& point : points) {
    for (int pass = 1; pass <= 2; ++pass) {
      Forked writer([&] {
        fault::arm(point, fault::Action::kKill, pass);
        update_all(*box_, tag + 1);
        box_->write_bool(0, true, Deadline::never());
        return 0;
      });
      writer.wait();
      const std::int64_t after = read_all(*box_);
      ASSERT_TRUE(after == tag || after == tag + 1) << point << " left " << after;
      tag += 2;
      ASSERT_EQ(update_all(*box_, tag).outcome, Outcome::kOk) << point;
      ASSERT_EQ(read_all(*box_), tag) << point;
      ASSERT_EQ(box_->write_bool(0, false, Deadline::in(10s)).outcome, Outcome::kOk) << point;
    }
  }
}

TEST_F(BoxScalars, AReaderStoppedInTheMiddleStartsOverWhenItWasOverrun) {
  std::int64_t tag = 1;
  ASSERT_EQ(update_all(*box_, tag).outcome, Outcome::kOk);
  Forked reader([&] {
    fault::arm("box.read.loaded", fault::Action::kStop);
    std::array<std::uint64_t, 2> words{};
    const std::uint64_t version = box_->read_words(box_->first_word(1), words);
    return words[0] == version && std::bit_cast<double>(words[1]) == static_cast<double>(version) ? 0 : 1;
  });
  ASSERT_TRUE(reader.wait_stopped());
  for (int i = 0; i < 9; ++i) ASSERT_EQ(update_all(*box_, ++tag).outcome, Outcome::kOk);
  reader.signal(SIGCONT);
  EXPECT_TRUE(reader.succeeds());
}

TEST_F(BoxScalars, AStoppedArrayWriterDelaysNoWriterOfScalars) {
  ASSERT_EQ(update_all(*box_, 1).outcome, Outcome::kOk);
  Forked writer([&] {
    fault::arm("box.publish.field_copied", fault::Action::kStop);
    return update_all(*box_, 2).outcome == Outcome::kOk ? 0 : 1;
  });
  ASSERT_TRUE(writer.wait_stopped());
  for (int i = 0; i < 10; ++i) ASSERT_EQ(box_->write_bool(0, true, Deadline::in(1s)).outcome, Outcome::kOk);
  EXPECT_EQ(read_all(*box_), 1);
  writer.signal(SIGCONT);
  EXPECT_TRUE(writer.succeeds());
  EXPECT_EQ(read_all(*box_), 2);
  EXPECT_TRUE(box_->read_bool(0));
}

#endif

}  // namespace
}  // namespace gristmill
