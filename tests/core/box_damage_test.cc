// Segments whose bytes were overwritten.

#include "core/box.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <random>

#include "tests/core/box_fixture.h"
#include "tests/core/forked.h"

namespace gristmill {
namespace {

using namespace box_test;

TEST(BoxDamage, AttachRefusesADamagedSegmentAndNeverCrashesOnOne) {
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

TEST(BoxDamage, DamageUnderAnAttachedBoxIsAnErrorNotACrash) {
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
