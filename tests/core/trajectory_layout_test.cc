#include "core/trajectory_layout.h"

#include <gtest/gtest.h>

#include <cstring>
#include <stdexcept>
#include <vector>

namespace gristmill {
namespace {

FieldSpecs one(DType dtype, std::vector<std::int64_t> shape) { return {{"a", dtype, std::move(shape)}}; }

TEST(TrajectoryLayout, AMirroredRingIsTheFewestPlacesThatFillWholePages) {
  const struct {
    FieldSpecs spec;
    std::int64_t capacity;
    std::uint64_t places;
  } cases[] = {
      {one(DType::kUInt8, {4096}), 5, 5},      // a page each
      {one(DType::kUInt8, {8192}), 1, 1},      //
      {one(DType::kFloat32, {}), 1, 1024},     // 1024 scalars are a page
      {one(DType::kFloat32, {}), 1025, 2048},  //
      {one(DType::kUInt8, {6144}), 3, 4},      // two are three pages
      {one(DType::kUInt8, {1}), 10, 4096},
  };
  for (const auto& c : cases) {
    const QueueLayout layout = QueueLayout::of(c.spec, c.capacity);
    EXPECT_TRUE(layout.rings[0].mirrored);
    EXPECT_EQ(layout.rings[0].places, c.places);
    EXPECT_EQ(layout.rings[0].ring_bytes, c.places * c.spec[0].bytes());
    EXPECT_EQ(layout.rings[0].ring_bytes % 4096, 0u);
  }
}

TEST(TrajectoryLayout, AFieldWhoseMirrorWouldBeHugeIsHeldWithoutIt) {
  // 392 931 bytes, an odd number: a mirrored ring would take 4096 places, 1.6 GB.
  const QueueLayout layout = QueueLayout::of(one(DType::kUInt8, {33, 63, 63, 3}), 64);
  EXPECT_FALSE(layout.rings[0].mirrored);
  EXPECT_EQ(layout.rings[0].places, 64u);
  EXPECT_GE(layout.rings[0].ring_bytes, 127u * 392'931u);
  EXPECT_LT(layout.payload_bytes, 128u * 392'931u + (1u << 20));
}

TEST(TrajectoryLayout, RingsDoNotOverlapAndBeginOnPages) {
  const FieldSpecs spec{{"a", DType::kUInt8, {5}},
                        {"b", DType::kFloat32, {0}},
                        {"c", DType::kUInt8, {33, 63, 63, 3}},
                        {"d", DType::kFloat64, {100}}};
  const QueueLayout layout = QueueLayout::of(spec, 50);
  std::uint64_t end = layout.words_offset + 50 * sizeof(std::uint64_t);
  for (const RingLayout& ring : layout.rings) {
    EXPECT_GE(ring.offset, end);
    EXPECT_EQ(ring.offset % 4096, 0u);
    end = ring.offset + ring.ring_bytes;
  }
  EXPECT_EQ(layout.payload_bytes, end);
}

TEST(TrajectoryLayout, CapacitiesAndSizesThatCannotBeAreRefused) {
  const FieldSpecs spec = one(DType::kFloat32, {4});
  EXPECT_THROW(QueueLayout::of(spec, 0), std::invalid_argument);
  EXPECT_THROW(QueueLayout::of(spec, -1), std::invalid_argument);
  EXPECT_THROW(QueueLayout::of(spec, std::int64_t{1} << 40), std::invalid_argument);
  EXPECT_THROW(QueueLayout::of({}, 4), std::invalid_argument);
  EXPECT_THROW(QueueLayout::of(one(DType::kUInt8, {std::int64_t{1} << 60}), 64), std::invalid_argument);
}

TEST(TrajectoryLayout, WhatIsWrittenIsReadBack) {
  const FieldSpecs spec{{"a", DType::kUInt8, {5}}, {"b", DType::kFloat32, {2, 3}}};
  const QueueLayout layout = QueueLayout::of(spec, 7);
  auto* payload = static_cast<std::byte*>(::operator new(layout.payload_bytes, std::align_val_t(4096)));
  std::memset(payload, 0, layout.payload_bytes);
  layout.write(payload);
  const QueueLayout read = QueueLayout::read(payload, layout.payload_bytes);
  EXPECT_EQ(read.spec, spec);
  EXPECT_EQ(read.capacity, 7u);
  EXPECT_EQ(read.payload_bytes, layout.payload_bytes);

  EXPECT_THROW(QueueLayout::read(payload, 100), std::invalid_argument);
  EXPECT_THROW(QueueLayout::read(payload, layout.payload_bytes + 4096), std::invalid_argument);
  const std::size_t geometry = offsetof(QueueControl, fields) + 2 * sizeof(FieldRecord);
  for (std::size_t offset = 0; offset < geometry; ++offset) {
    const std::byte good = payload[offset];
    payload[offset] = good ^ std::byte{0x5A};
    EXPECT_THROW(QueueLayout::read(payload, layout.payload_bytes), std::invalid_argument) << offset;
    payload[offset] = good;
  }
  ::operator delete(payload, std::align_val_t(4096));
}

TEST(Place, SurvivesPackingAtTheLimits) {
  const Place place{(std::uint64_t{1} << 48) - 1, 4095, PlaceState::kSkipped};
  const Place read = Place::unpack(place.pack());
  EXPECT_EQ(read.position, place.position);
  EXPECT_EQ(read.lease, place.lease);
  EXPECT_EQ(read.state, place.state);
  EXPECT_EQ(Place::unpack(0).state, PlaceState::kNone);
}

}  // namespace
}  // namespace gristmill
