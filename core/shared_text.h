#pragma once

// A text in shared memory that may be read while it is replaced, and whose writer may be killed in
// the middle: a reader gets the whole old text, the whole new one, or an empty one. Any bytes.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "core/fault_point.h"

namespace gristmill {

// In shared memory, zero-initialised: empty. One writer at a time.
template <std::size_t Capacity>
class SharedText {
 public:
  static constexpr std::size_t kCapacity = Capacity;

  // The writer. Longer text is refused: false, and nothing changes.
  bool set(std::string_view text) {
    if (text.size() > Capacity) return false;
    const std::uint64_t edit = (state_.load(std::memory_order_relaxed) >> 32) + 1;
    // A seqlock's odd state is here "empty": whoever is killed below leaves an empty text, not a
    // lock. Words are stored with release (free on x86), so none of them can be seen before this.
    state_.store(edit << 32, std::memory_order_relaxed);
    for (std::size_t at = 0; at < text.size(); at += sizeof(std::uint64_t)) {
      std::uint64_t word = 0;
      std::memcpy(&word, text.data() + at, std::min(sizeof word, text.size() - at));
      GRISTMILL_FAULT_POINT("text.word");
      words_[at / sizeof word].store(word, std::memory_order_release);
    }
    GRISTMILL_FAULT_POINT("text.written");
    // Pairs with the first load in get().
    state_.store((edit + 1) << 32 | text.size(), std::memory_order_release);
    return true;
  }

  std::string get() const {
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      const std::uint64_t state = state_.load(std::memory_order_acquire);
      const std::size_t size = std::min<std::size_t>(state & 0xffffffffu, Capacity);
      std::string text(size, '\0');
      for (std::size_t at = 0; at < size; at += sizeof(std::uint64_t)) {
        const std::uint64_t word = words_[at / sizeof word].load(std::memory_order_acquire);
        std::memcpy(text.data() + at, &word, std::min(sizeof word, size - at));
      }
      // The acquiring loads above keep this one after them: equal means nobody wrote meanwhile.
      if (state_.load(std::memory_order_relaxed) == state) return text;
    }
    return {};
  }

 private:
  static_assert(Capacity % sizeof(std::uint64_t) == 0);
  static constexpr int kAttempts = 100;

  std::atomic<std::uint64_t> state_{0};  // number of edits << 32 | size in bytes
  std::array<std::atomic<std::uint64_t>, Capacity / sizeof(std::uint64_t)> words_{};
};

}  // namespace gristmill
