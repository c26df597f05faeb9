#pragma once

// Bulk copies into and out of shared memory that another process may overwrite, or read, meanwhile:
// what was copied counts only if a sequence word read afterwards is unchanged. A plain memcpy there
// would be a data race by the memory model of C++.
//
// On x86 the copy is made of instructions that the compiler does not see into, and that are no
// operations of the memory model: 16-byte moves, the string instruction `rep movsb`, and streaming stores
// with the fence that they need. The processor orders them as the protocols here need: no store of the copy
// becomes visible after a later store, and no load of it is satisfied after a later load. Elsewhere, and
// under the thread sanitizer, the copy is made of 8-byte atomics, released and acquired word by word (the
// sanitizer models no fences, and string instructions not at all).

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace gristmill {

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)

inline void move_16(std::byte* to, const std::byte* from) {
  asm volatile("movups (%1), %%xmm0\n\tmovups %%xmm0, (%0)" : : "r"(to), "r"(from) : "xmm0", "memory");
}
inline void move_64(std::byte* to, const std::byte* from) {
  asm volatile(
      "movups (%1), %%xmm0\n\tmovups 16(%1), %%xmm1\n\tmovups 32(%1), %%xmm2\n\tmovups 48(%1), %%xmm3\n\t"
      "movups %%xmm0, (%0)\n\tmovups %%xmm1, 16(%0)\n\tmovups %%xmm2, 32(%0)\n\tmovups %%xmm3, 48(%0)"
      :
      : "r"(to), "r"(from)
      : "xmm0", "xmm1", "xmm2", "xmm3", "memory");
}
inline void move_string(std::byte* to, const std::byte* from, std::size_t bytes) {
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}

// Past the caches. REQUIRES: `to` is aligned to 16.
inline void stream_64(std::byte* to, const std::byte* from) {
  asm volatile(
      "prefetchnta 512(%1)\n\t"
      "movups (%1), %%xmm0\n\tmovups 16(%1), %%xmm1\n\tmovups 32(%1), %%xmm2\n\tmovups 48(%1), %%xmm3\n\t"
      "movntps %%xmm0, (%0)\n\tmovntps %%xmm1, 16(%0)\n\tmovntps %%xmm2, 32(%0)\n\tmovntps %%xmm3, 48(%0)"
      :
      : "r"(to), "r"(from)
      : "xmm0", "xmm1", "xmm2", "xmm3", "memory");
}

// Which instructions are the quickest depends on the size; the borders were measured on Zen 3, where
// large copies take half of memcpy's time.
inline void copy_opaque(std::byte* to, const std::byte* from, std::size_t bytes) {
  constexpr std::size_t kLine = 64, kPage = 4096;
  constexpr std::size_t kStringFrom = 512, kMovesFrom = std::size_t{32} << 10,
                        kStreamFrom = std::size_t{24} << 20;
  if (bytes >= kStringFrom) {
    move_64(to, from);
    const std::size_t head = kLine - reinterpret_cast<std::uintptr_t>(to) % kLine;
    to += head, from += head, bytes -= head;
    if (bytes < kMovesFrom) {
      // To a target that follows closely on its source within the page, the string instruction takes up to
      // 30 times as long: its loads look like what it has just stored.
      const std::uintptr_t distance =
          (reinterpret_cast<std::uintptr_t>(to) - reinterpret_cast<std::uintptr_t>(from)) % kPage;
      if (distance == 0 || distance >= kLine / 2) return move_string(to, from, bytes);
    } else if (bytes >= kStreamFrom) {
      for (; bytes >= kLine; bytes -= kLine, to += kLine, from += kLine) stream_64(to, from);
      // Streaming stores are not ordered with later ones.
      asm volatile("sfence" : : : "memory");
    }
  }
  for (; bytes >= kLine; bytes -= kLine, to += kLine, from += kLine) move_64(to, from);
  for (; bytes >= 16; bytes -= 16, to += 16, from += 16) move_16(to, from);
  for (; bytes >= 8; bytes -= 8, to += 8, from += 8) {
    std::uint64_t word;
    asm volatile("movq (%2), %0\n\tmovq %0, (%1)" : "=&r"(word) : "r"(to), "r"(from) : "memory");
  }
  if (bytes > 0) move_string(to, from, bytes);
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

// Out of shared memory that nobody writes meanwhile: a plain copy, which the sanitizers watch over.
inline void copy_from_still(std::byte* to, const std::byte* shared, std::size_t bytes) {
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
  copy_opaque(to, shared, bytes);
#else
  std::memcpy(to, shared, bytes);
#endif
}

}  // namespace gristmill
