#pragma once

// Reproducible choices: the same seed and stream give the same sequence everywhere.

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace gristmill::campaign {

inline std::uint64_t mixed(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ x >> 27) * 0x94D049BB133111EBull;
  return x ^ x >> 31;
}

class Random {
 public:
  Random(std::uint64_t seed, std::uint64_t stream) : state_(mixed(seed) ^ mixed(~stream)) {}

  std::uint64_t next() { return mixed(state_++); }
  // 0 … n - 1. REQUIRES: n > 0.
  std::uint64_t below(std::uint64_t n) { return next() % n; }
  // first … last, both included.
  std::uint64_t between(std::uint64_t first, std::uint64_t last) { return first + below(last - first + 1); }
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  bool chance(double probability) { return unit() < probability; }
  double exponential(double mean) { return -mean * std::log(1.0 - unit()); }
  template <class T, std::size_t N>
  const T& pick(const T (&from)[N]) {
    return from[below(N)];
  }

 private:
  std::uint64_t state_;
};

}  // namespace gristmill::campaign
