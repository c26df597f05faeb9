#pragma once

// What a put puts: count() messages, each with its length(i), and copy(i, to, how): how(to, from, bytes) for
// each of its parts.

#include <cstddef>
#include <cstdint>
#include <span>

namespace gristmill {

struct OneMessage {
  std::span<const std::byte> message;
  std::uint64_t count() const { return 1; }
  std::uint64_t length(std::uint64_t) const { return message.size(); }
  template <class How>
  void copy(std::uint64_t, std::byte* to, const How& how) const {
    how(to, message.data(), message.size());
  }
};
struct OneOfParts {
  std::span<const std::span<const std::byte>> parts;
  std::uint64_t total = 0;
  std::uint64_t count() const { return 1; }
  std::uint64_t length(std::uint64_t) const { return total; }
  template <class How>
  void copy(std::uint64_t, std::byte* to, const How& how) const {
    for (const std::span<const std::byte> part : parts) {
      how(to, part.data(), part.size());
      to += part.size();
    }
  }
};
struct ManyMessages {
  std::span<const std::span<const std::byte>> messages;
  std::uint64_t count() const { return messages.size(); }
  std::uint64_t length(std::uint64_t i) const { return messages[i].size(); }
  template <class How>
  void copy(std::uint64_t i, std::byte* to, const How& how) const {
    how(to, messages[i].data(), messages[i].size());
  }
};
struct PackedMessages {
  const std::byte* packed;
  std::span<const std::uint64_t> ends;
  std::uint64_t begin(std::uint64_t i) const { return i == 0 ? 0 : ends[i - 1]; }
  std::uint64_t count() const { return ends.size(); }
  std::uint64_t length(std::uint64_t i) const { return ends[i] - begin(i); }
  template <class How>
  void copy(std::uint64_t i, std::byte* to, const How& how) const {
    how(to, packed + begin(i), length(i));
  }
};

}  // namespace gristmill
