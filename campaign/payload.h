#pragma once

// Messages that tell whether they are whole: every byte is a function of the tag and the length.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "campaign/random.h"

namespace gristmill::campaign {

// Which producer's life, and the how-manieth of it.
struct Tag {
  static constexpr int kSequenceBits = 40;
  static std::uint64_t of(std::uint64_t life, std::uint64_t sequence) {
    return life << kSequenceBits | sequence;
  }
  static std::uint64_t life(std::uint64_t tag) { return tag >> kSequenceBits; }
  static std::uint64_t sequence(std::uint64_t tag) { return tag & ((std::uint64_t{1} << kSequenceBits) - 1); }
};

inline constexpr std::size_t kLeastPayload = 16;

// REQUIRES: into.size() >= kLeastPayload.
inline void write_payload(std::uint64_t tag, std::span<std::byte> into) {
  const std::uint64_t check = mixed(tag ^ into.size());
  std::memcpy(into.data(), &tag, 8);
  std::memcpy(into.data() + 8, &check, 8);
  std::uint64_t word = check;
  for (std::size_t i = kLeastPayload; i < into.size(); i += 8) {
    word = word * 0x9E3779B97F4A7C15ull + 1;
    std::memcpy(into.data() + i, &word, into.size() - i < 8 ? into.size() - i : 8);
  }
}

// Its tag; nullopt when a byte of it, or its length, is not as written.
inline std::optional<std::uint64_t> read_payload(std::span<const std::byte> from) {
  if (from.size() < kLeastPayload) return std::nullopt;
  std::uint64_t tag = 0;
  std::uint64_t check = 0;
  std::memcpy(&tag, from.data(), 8);
  std::memcpy(&check, from.data() + 8, 8);
  std::uint64_t word = mixed(tag ^ from.size());
  if (check != word) return std::nullopt;
  for (std::size_t i = kLeastPayload; i < from.size(); i += 8) {
    word = word * 0x9E3779B97F4A7C15ull + 1;
    if (std::memcmp(from.data() + i, &word, from.size() - i < 8 ? from.size() - i : 8) != 0)
      return std::nullopt;
  }
  return tag;
}

}  // namespace gristmill::campaign
