#include "core/shared_copy.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace gristmill {
namespace {

using Copy = void (*)(std::byte*, const std::byte*, std::size_t);

class SharedCopy : public testing::TestWithParam<Copy> {
 protected:
  // Every way that a copy may take: by size, by the alignment of either side, by their distance.
  static void check(std::size_t bytes, std::size_t from_offset, std::size_t to_offset) {
    constexpr std::size_t kPage = 4096;
    constexpr auto kUntouched = std::byte{0xEE};
    std::vector<std::byte> source(bytes + 3 * kPage), target(bytes + 3 * kPage, kUntouched);
    for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i * 31 + i / 251);
    const auto aligned = [](std::vector<std::byte>& memory) {
      const auto at = reinterpret_cast<std::uintptr_t>(memory.data());
      return memory.data() + (kPage - at % kPage) + 64;
    };
    std::byte* to = aligned(target) + to_offset;
    const std::byte* from = aligned(source) + from_offset;
    GetParam()(to, from, bytes);
    ASSERT_TRUE(std::equal(from, from + bytes, to))
        << bytes << " bytes, " << from_offset << ", " << to_offset;
    ASSERT_EQ(to[-1], kUntouched) << bytes;
    // Up to the next word a copy into shared memory may write: arrays are padded there.
    ASSERT_EQ(to[(bytes + 7) / 8 * 8], kUntouched) << bytes;
  }
};

TEST_P(SharedCopy, CopiesEveryByteAndNoOther) {
  for (std::size_t bytes = 0; bytes < 700; ++bytes) check(bytes, 0, 0);
  for (const std::size_t bytes : {4096u, 32767u, 32768u, 40003u, 1u << 20}) {
    for (const std::size_t from : {0, 8, 16, 48, 4072}) {
      for (const std::size_t to : {0, 8, 16}) check(bytes, from, to);
    }
  }
}

TEST_P(SharedCopy, CopiesWhatExceedsTheCaches) {
  check((24u << 20) + 64 + 13, 16, 0);
  check((24u << 20) + 64, 0, 16);
}

INSTANTIATE_TEST_SUITE_P(In, SharedCopy, testing::Values(&copy_to_shared));
INSTANTIATE_TEST_SUITE_P(Out, SharedCopy, testing::Values(&copy_from_shared));
INSTANTIATE_TEST_SUITE_P(OutOfStill, SharedCopy, testing::Values(&copy_from_still));

}  // namespace
}  // namespace gristmill
