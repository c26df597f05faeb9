#pragma once

// Bulk copies into and out of shared memory that another process may overwrite, or read, meanwhile:
// what was copied counts only if a sequence word read afterwards is unchanged. A plain memcpy there
// would be a data race by the memory model of C++.
//
// On x86 the copy is made of instructions that the compiler does not see into, and that are no
// operations of the memory model: 16-byte moves, and for what exceeds the caches a string instruction,
// `rep movsb`, which is as fast as memory is. The processor orders both as the protocols here need: no
// store of the copy becomes visible after a later store, and no load of it is satisfied after a later
// load. Elsewhere, and under the thread sanitizer, the copy is made of 8-byte atomics, released
// and acquired word by word (the sanitizer models no fences, and string instructions not at all).

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace gristmill {

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)

inline void copy_string(std::byte* to, const std::byte* from, std::size_t bytes) {
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}
inline void copy_opaque(std::byte* to, const std::byte* from, std::size_t bytes) {
  constexpr std::size_t kCached = std::size_t{4} << 20;
  if (bytes < kCached) {
    for (; bytes >= 64; bytes -= 64, to += 64, from += 64) {
      asm volatile(
          "movups (%1), %%xmm0\n\tmovups 16(%1), %%xmm1\n\tmovups 32(%1), %%xmm2\n\tmovups 48(%1), %%xmm3\n\t"
          "movups %%xmm0, (%0)\n\tmovups %%xmm1, 16(%0)\n\tmovups %%xmm2, 32(%0)\n\tmovups %%xmm3, 48(%0)"
          :
          : "r"(to), "r"(from)
          : "xmm0", "xmm1", "xmm2", "xmm3", "memory");
    }
  }
  copy_string(to, from, bytes);
}
inline void copy_to_shared(std::byte* shared, const std::byte* from, std::size_t bytes) {
  copy_opaque(shared, from, bytes);
}
inline void copy_from_shared(std::byte* to, const std::byte* shared, std::size_t bytes) {
  copy_opaque(to, shared, bytes);
}

#else

// REQUIRES (both): `shared` is 8-byte aligned, and readable and writable up to the next multiple of 8.
inline void copy_to_shared(std::byte* shared, const std::byte* from, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, from + at, std::min<std::size_t>(8, bytes - at));
    std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(shared + at))
        .store(word, std::memory_order_release);
  }
}
inline void copy_from_shared(std::byte* to, const std::byte* shared, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += 8) {
    auto* word = reinterpret_cast<std::uint64_t*>(const_cast<std::byte*>(shared + at));
    const std::uint64_t value = std::atomic_ref<std::uint64_t>(*word).load(std::memory_order_acquire);
    std::memcpy(to + at, &value, std::min<std::size_t>(8, bytes - at));
  }
}

#endif

}  // namespace gristmill
