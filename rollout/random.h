#pragma once

// Random numbers for environments and sampling: xoshiro256++ (Blackman & Vigna), 1 ns a number, the
// same on every platform (the standard library's distributions are not).

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace gristmill {

// One step of SplitMix64: a bijection of 64-bit words that scatters neighbours.
constexpr std::uint64_t splitmix64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

// Used by one thread.
class Random {
 public:
  // Any seed will do, 0 included: the state is scattered from it, and never all zero.
  explicit constexpr Random(std::uint64_t seed) {
    for (std::uint64_t& word : state_) {
      word = splitmix64(seed);
      seed += 0x9e3779b97f4a7c15U;
    }
  }

  // Uniform over all 64-bit words.
  constexpr std::uint64_t next() {
    auto& s = state_;
    const std::uint64_t result = std::rotl(s[0] + s[3], 23) + s[0];
    const std::uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = std::rotl(s[3], 45);
    return result;
  }

  // Uniform in [0, 1), 53 random bits.
  constexpr double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
  // Uniform in [low, high).
  constexpr double uniform(double low, double high) { return low + (high - low) * uniform(); }
  // Uniform in [0, count), without a visible bias for counts far below 2^53. REQUIRES: count > 0.
  constexpr std::int64_t below(std::int64_t count) {
    return static_cast<std::int64_t>(uniform() * static_cast<double>(count));
  }
  // Standard normal (Box-Muller).
  float normal() {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
    return static_cast<float>(radius * std::cos(2.0 * std::numbers::pi * uniform()));
  }

  // For checkpoints: set_state(state()) goes on alike.
  constexpr const std::array<std::uint64_t, 4>& state() const { return state_; }
  constexpr void set_state(const std::array<std::uint64_t, 4>& state) { state_ = state; }

 private:
  std::array<std::uint64_t, 4> state_{};
};

}  // namespace gristmill
