#include "core/box.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>

#include "tests/core/box_fixture.h"
#include "tests/core/forked.h"

namespace gristmill {
namespace {

using namespace box_test;

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

}  // namespace
}  // namespace gristmill
