#include "core/ring_mapping.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <system_error>
#include <utility>

namespace gristmill {
namespace {

constexpr std::size_t kBytes = 2 * 4096;

class RingMappingTest : public testing::Test {
 protected:
  RingMappingTest() : fd_(::memfd_create("ring", MFD_CLOEXEC)) {
    EXPECT_EQ(::ftruncate(fd_, 4096 + kBytes), 0);
  }
  ~RingMappingTest() override { ::close(fd_); }
  int fd_;
};

TEST_F(RingMappingTest, EveryByteIsSeenAgainOneRingLater) {
  const RingMapping ring(fd_, 4096, kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) ring.data()[i] = static_cast<std::byte>(i * 7);
  EXPECT_EQ(std::memcmp(ring.data(), ring.data() + kBytes, kBytes), 0);
  ring.data()[kBytes + 5] = std::byte{0xAB};
  EXPECT_EQ(ring.data()[5], std::byte{0xAB});
}

TEST_F(RingMappingTest, AMoveLeavesNothingBehind) {
  RingMapping first(fd_, 4096, kBytes);
  std::byte* const data = first.data();
  RingMapping second(std::move(first));
  EXPECT_EQ(first.data(), nullptr);
  EXPECT_EQ(second.data(), data);
  second = RingMapping(fd_, 0, 4096);
  EXPECT_NE(second.data(), nullptr);
}

TEST_F(RingMappingTest, AnOffsetOffThePageIsAnError) {
  EXPECT_THROW(RingMapping(fd_, 100, kBytes), std::system_error);
  EXPECT_THROW(RingMapping(-1, 0, kBytes), std::system_error);
}

}  // namespace
}  // namespace gristmill
