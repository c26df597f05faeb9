#pragma once

// What a put puts: count() messages, each with its length(i), and copy(i, to).

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace gristmill {

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

struct OneMessage {
  std::span<const std::byte> message;
  std::uint64_t count() const { return 1; }
  std::uint64_t length(std::uint64_t) const { return message.size(); }
  void copy(std::uint64_t, std::byte* to) const { copy_bytes(to, message.data(), message.size()); }
};
struct OneOfParts {
  std::span<const std::span<const std::byte>> parts;
  std::uint64_t total = 0;
  std::uint64_t count() const { return 1; }
  std::uint64_t length(std::uint64_t) const { return total; }
  void copy(std::uint64_t, std::byte* to) const {
    for (const std::span<const std::byte> part : parts) {
      copy_bytes(to, part.data(), part.size());
      to += part.size();
    }
  }
};
struct ManyMessages {
  std::span<const std::span<const std::byte>> messages;
  std::uint64_t count() const { return messages.size(); }
  std::uint64_t length(std::uint64_t i) const { return messages[i].size(); }
  void copy(std::uint64_t i, std::byte* to) const { copy_bytes(to, messages[i].data(), messages[i].size()); }
};
struct PackedMessages {
  const std::byte* packed;
  std::span<const std::uint64_t> ends;
  std::uint64_t begin(std::uint64_t i) const { return i == 0 ? 0 : ends[i - 1]; }
  std::uint64_t count() const { return ends.size(); }
  std::uint64_t length(std::uint64_t i) const { return ends[i] - begin(i); }
  void copy(std::uint64_t i, std::byte* to) const { copy_bytes(to, packed + begin(i), length(i)); }
};

}  // namespace gristmill
