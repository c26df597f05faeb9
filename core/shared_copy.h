#pragma once

// Bulk copies into and out of shared memory that another process may overwrite, or read, meanwhile:
// what was copied counts only if a sequence word read afterwards is unchanged. A plain memcpy there
// would be a data race by the memory model of C++.
//
// On x86 the copy is one string instruction, `rep movsb`: not an operation of the memory model at
// all, and as fast as memory is. The processor orders it as the protocols here need: no store of a
// string operation becomes visible after a later store, and no load of one is satisfied after a
// later load. Elsewhere, and under the thread sanitizer, the copy is made of 8-byte atomics, released
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
inline void copy_to_shared(std::byte* shared, const std::byte* from, std::size_t bytes) {
  copy_string(shared, from, bytes);
}
inline void copy_from_shared(std::byte* to, const std::byte* shared, std::size_t bytes) {
  copy_string(to, shared, bytes);
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
