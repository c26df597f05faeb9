#pragma once

// Messages that tell whether they are whole: every byte is a function of the tag and the length.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "tests/campaign/random.h"

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

inline constexpr std::size_t kLeastPayload = 24;

struct Payload {
  std::uint64_t tag = 0;
  std::uint64_t put_at = 0;  // nanoseconds_now() when it was written, or 0
};

// REQUIRES: into.size() >= kLeastPayload.
inline void write_payload(const Payload& payload, std::span<std::byte> into) {
  std::uint64_t word = mixed(payload.tag ^ into.size() ^ mixed(payload.put_at));
  std::memcpy(into.data(), &payload.tag, 8);
  std::memcpy(into.data() + 8, &word, 8);
  std::memcpy(into.data() + 16, &payload.put_at, 8);
  for (std::size_t i = kLeastPayload; i < into.size(); i += 8) {
    word = word * 0x9E3779B97F4A7C15ull + 1;
    std::memcpy(into.data() + i, &word, into.size() - i < 8 ? into.size() - i : 8);
  }
}

// nullopt when a byte of it, or its length, is not as written.
inline std::optional<Payload> read_payload(std::span<const std::byte> from) {
  if (from.size() < kLeastPayload) return std::nullopt;
  Payload payload;
  std::uint64_t check = 0;
  std::memcpy(&payload.tag, from.data(), 8);
  std::memcpy(&check, from.data() + 8, 8);
  std::memcpy(&payload.put_at, from.data() + 16, 8);
  std::uint64_t word = mixed(payload.tag ^ from.size() ^ mixed(payload.put_at));
  if (check != word) return std::nullopt;
  for (std::size_t i = kLeastPayload; i < from.size(); i += 8) {
    word = word * 0x9E3779B97F4A7C15ull + 1;
    if (std::memcmp(from.data() + i, &word, from.size() - i < 8 ? from.size() - i : 8) != 0)
      return std::nullopt;
  }
  return payload;
}

}  // namespace gristmill::campaign
