#pragma once

// A 64-bit hash (XXH64) that tells damaged files from whole ones, and a hash of a configuration or of
// parameters to compare runs by. Against accidents, not against an adversary. Any thread.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace gristmill {

// XXH64 of the bytes, with the given seed. Feeding a result as the next seed chains pieces.
std::uint64_t content_hash(std::span<const std::byte> bytes, std::uint64_t seed = 0);
std::uint64_t content_hash(std::string_view text, std::uint64_t seed = 0);
std::uint64_t content_hash(std::span<const float> values, std::uint64_t seed = 0);

// 16 lower-case hex digits.
std::string hash_text(std::uint64_t hash);

// A text that holds its own hash: kUnsealed occurs in it exactly once, and is replaced by the hash of
// the whole (as it was, and `rest` after it). Any change of one byte in text or rest breaks the seal.
inline constexpr std::string_view kUnsealed = "xxh64:0000000000000000";
// Whether a value has the form that seal() gives it.
bool is_seal(std::string_view value);
// Throws std::logic_error when kUnsealed does not occur exactly once.
void seal(std::string& text, std::span<const std::byte> rest = {});
// `value` is what stands in the text where kUnsealed stood, as the reader parsed it.
bool seal_holds(std::string_view text, std::string_view value, std::span<const std::byte> rest = {});

}  // namespace gristmill
