#include "learner/content_hash.h"

#include <bit>
#include <cstring>
#include <stdexcept>

namespace gristmill {
namespace {

constexpr std::uint64_t kPrime1 = 0x9E3779B185EBCA87u;
constexpr std::uint64_t kPrime2 = 0xC2B2AE3D27D4EB4Fu;
constexpr std::uint64_t kPrime3 = 0x165667B19E3779F9u;
constexpr std::uint64_t kPrime4 = 0x85EBCA77C2B2AE63u;
constexpr std::uint64_t kPrime5 = 0x27D4EB2F165667C5u;

// The format is little-endian, as every machine this runs on.
static_assert(std::endian::native == std::endian::little);
template <typename T>
T read(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

std::uint64_t round(std::uint64_t lane, std::uint64_t input) {
  return std::rotl(lane + input * kPrime2, 31) * kPrime1;
}
std::uint64_t merge(std::uint64_t hash, std::uint64_t lane) {
  return (hash ^ round(0, lane)) * kPrime1 + kPrime4;
}

}  // namespace

std::uint64_t content_hash(std::span<const std::byte> bytes, std::uint64_t seed) {
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  std::uint64_t hash = seed + kPrime5;
  if (left >= 32) {
    std::uint64_t a = seed + kPrime1 + kPrime2, b = seed + kPrime2, c = seed, d = seed - kPrime1;
    for (; left >= 32; left -= 32, at += 32) {
      a = round(a, read<std::uint64_t>(at));
      b = round(b, read<std::uint64_t>(at + 8));
      c = round(c, read<std::uint64_t>(at + 16));
      d = round(d, read<std::uint64_t>(at + 24));
    }
    hash = std::rotl(a, 1) + std::rotl(b, 7) + std::rotl(c, 12) + std::rotl(d, 18);
    hash = merge(merge(merge(merge(hash, a), b), c), d);
  }
  hash += bytes.size();
  for (; left >= 8; left -= 8, at += 8) {
    hash = std::rotl(hash ^ round(0, read<std::uint64_t>(at)), 27) * kPrime1 + kPrime4;
  }
  if (left >= 4) {
    hash = std::rotl(hash ^ read<std::uint32_t>(at) * kPrime1, 23) * kPrime2 + kPrime3;
    left -= 4;
    at += 4;
  }
  for (; left > 0; --left, ++at) {
    hash = std::rotl(hash ^ std::to_integer<std::uint64_t>(*at) * kPrime5, 11) * kPrime1;
  }
  hash = (hash ^ (hash >> 33)) * kPrime2;
  hash = (hash ^ (hash >> 29)) * kPrime3;
  return hash ^ (hash >> 32);
}

std::uint64_t content_hash(std::string_view text, std::uint64_t seed) {
  return content_hash(std::as_bytes(std::span(text)), seed);
}

std::uint64_t content_hash(std::span<const float> values, std::uint64_t seed) {
  return content_hash(std::as_bytes(values), seed);
}

std::string hash_text(std::uint64_t hash) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text(16, '0');
  for (std::size_t i = 0; i < 16; ++i) text[15 - i] = kDigits[(hash >> (4 * i)) & 15u];
  return text;
}

namespace {

constexpr std::string_view kSealPrefix = kUnsealed.substr(0, kUnsealed.size() - 16);

std::string seal_of(std::string_view unsealed, std::span<const std::byte> rest) {
  return std::string(kSealPrefix) + hash_text(content_hash(rest, content_hash(unsealed)));
}

}  // namespace

bool is_seal(std::string_view value) {
  return value.size() == kUnsealed.size() && value.starts_with(kSealPrefix);
}

void seal(std::string& text, std::span<const std::byte> rest) {
  const std::size_t at = text.find(kUnsealed);
  if (at == std::string::npos || text.find(kUnsealed, at + 1) != std::string::npos) {
    throw std::logic_error("a text to seal holds \"" + std::string(kUnsealed) + "\" not exactly once");
  }
  text.replace(at, kUnsealed.size(), seal_of(text, rest));
}

bool seal_holds(std::string_view text, std::string_view value, std::span<const std::byte> rest) {
  if (!is_seal(value)) return false;
  const std::size_t at = text.find(value);
  if (at == std::string_view::npos || text.find(value, at + 1) != std::string_view::npos) return false;
  std::string unsealed(text);
  unsealed.replace(at, kUnsealed.size(), kUnsealed);
  return value == seal_of(unsealed, rest);
}

}  // namespace gristmill
