#pragma once

// exp and log that compilers vectorise, and what hot loops are marked with. Internal to rollout/ and
// learner/.
// __builtin_bit_cast and not std::bit_cast: under -march=native a function of the library cannot be inlined
// into a version for another instruction set, and nothing would vectorise.
// Files that include this are compiled with -fopenmp-simd -fno-math-errno -fno-trapping-math.

#include <cstdint>

// One machine-code version per instruction set, chosen when the program starts, so that a binary for
// any x86-64 uses what it finds. Sanitizers' runtimes are not up yet when that choice is made.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__SANITIZE_ADDRESS__)
#define GRISTMILL_MULTIVERSION __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define GRISTMILL_MULTIVERSION
#endif
#define GRISTMILL_INLINE inline __attribute__((always_inline))

namespace gristmill {

// exp(x) within 2e-7 of relative error; saturates at 1.2e-38 and 2.4e38 (so that a wild ratio stays a
// number). NaN gives NaN. Range reduction and polynomial after Moshier's Cephes library.
GRISTMILL_INLINE float vector_exp(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
  x = x > 88.37f ? 88.37f : x;
  x = x < -87.33f ? -87.33f : x;
  const float shifted = x * 1.44269504088896341f + kRound;
  const std::uint32_t n =
      __builtin_bit_cast(std::uint32_t, shifted) - __builtin_bit_cast(std::uint32_t, kRound);
  const float whole = shifted - kRound;
  const float r = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
  float y = 1.9875691500e-4f;
  y = y * r + 1.3981999507e-3f;
  y = y * r + 8.3334519073e-3f;
  y = y * r + 4.1665795894e-2f;
  y = y * r + 1.6666665459e-1f;
  y = y * r + 5.0000001201e-1f;
  y = y * (r * r) + r + 1.0f;
  return y * __builtin_bit_cast(float, (n + 127u) << 23);
}

// log(x) of a positive normal number within 2e-7. NaN and infinity give NaN.
GRISTMILL_INLINE float vector_log(float x) {
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, x);
  float mantissa = __builtin_bit_cast(float, (bits & 0x007fffffu) | 0x3f000000u);  // [0.5, 1)
  float exponent = static_cast<float>(static_cast<std::int32_t>(bits >> 23) - 126);
  const bool low = mantissa < 0.707106781186547524f;
  exponent = low ? exponent - 1.0f : exponent;
  mantissa = (low ? mantissa + mantissa : mantissa) - 1.0f;
  const float square = mantissa * mantissa;
  float y = 7.0376836292e-2f;
  y = y * mantissa - 1.1514610310e-1f;
  y = y * mantissa + 1.1676998740e-1f;
  y = y * mantissa - 1.2420140846e-1f;
  y = y * mantissa + 1.4249322787e-1f;
  y = y * mantissa - 1.6668057665e-1f;
  y = y * mantissa + 2.0000714765e-1f;
  y = y * mantissa - 2.4999993993e-1f;
  y = y * mantissa + 3.3333331174e-1f;
  y = y * mantissa * square - exponent * 2.12194440e-4f - 0.5f * square;
  return mantissa + y + exponent * 0.693359375f + (x - x);  // x - x: 0, or NaN
}

}  // namespace gristmill
