#pragma once

// How message data is copied into a ring and out of it.

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace gristmill {

// A ring larger than a core's usual share of the last cache is walked through memory: data copied into it
// is not in a cache any more when its turn comes.
inline constexpr std::uint64_t kCachedRing = std::uint64_t{24} << 20;
// What is shorter is copied through the caches in any case.
inline constexpr std::size_t kStreamInto = std::size_t{128} << 10;
inline constexpr std::size_t kStreamOut = std::size_t{4} << 20;

// Past the caches: memory is written without being read first, and what is cached stays so. Ordered before
// every later store, as memcpy is.
void copy_streaming(std::byte* to, const std::byte* from, std::size_t bytes);

// Small copies inline: for a message of a few dozen bytes, memcpy's call is most of its cost.
inline void copy_bytes(std::byte* to, const std::byte* from, std::size_t n) {
  if (n > 32) {
    std::memcpy(to, from, n);
  } else if (n >= 16) {
    std::memcpy(to, from, 16);
    std::memcpy(to + n - 16, from + n - 16, 16);
  } else if (n >= 8) {
    std::memcpy(to, from, 8);
    std::memcpy(to + n - 8, from + n - 8, 8);
  } else {
    for (std::size_t i = 0; i < n; ++i) to[i] = from[i];
  }
}

inline void copy_into_ring(std::byte* to, const std::byte* from, std::size_t n, bool ring_is_cached) {
  if (n >= kStreamInto && !ring_is_cached) [[unlikely]] {
    copy_streaming(to, from, n);
  } else {
    copy_bytes(to, from, n);
  }
}
inline void copy_out_of_ring(std::byte* to, const std::byte* from, std::size_t n) {
  if (n >= kStreamOut) [[unlikely]] {
    copy_streaming(to, from, n);
  } else {
    std::memcpy(to, from, n);
  }
}

}  // namespace gristmill
