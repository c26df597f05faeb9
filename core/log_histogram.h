#pragma once

// A histogram in shared memory whose buckets grow with the value: four to an octave, so that a quantile
// read from it is within an eighth of the true one, from nanoseconds to hours. One writer, no locks;
// readers see each bucket exactly, all of them not quite of one moment.

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace gristmill {

// In shared memory, zero-initialised: empty.
class LogHistogram {
 public:
  static constexpr std::size_t kBuckets = 168;  // up to 2^43: 2.4 hours in nanoseconds; the last has the rest
  using Counts = std::array<std::uint64_t, kBuckets>;

  // Values below 4 have a bucket each; above, the highest bit chooses the octave, the next two the bucket.
  static constexpr std::size_t bucket_of(std::uint64_t value) {
    if (value < 4) return static_cast<std::size_t>(value);
    const auto octave = static_cast<std::size_t>(std::bit_width(value) - 2);  // 1 for 4 … 7
    return std::min(octave << 2 | static_cast<std::size_t>(value >> (octave - 1) & 3), kBuckets - 1);
  }
  // The least value in a bucket.
  static constexpr std::uint64_t lower_bound(std::size_t bucket) {
    if (bucket < 4) return bucket;
    return (4 + static_cast<std::uint64_t>(bucket & 3)) << ((bucket >> 2) - 1);
  }

  // The one writer.
  void record(std::uint64_t value, std::uint64_t times = 1) {
    auto& count = counts_[bucket_of(value)];
    count.store(count.load(std::memory_order_relaxed) + times, std::memory_order_relaxed);
  }
  void clear() {
    for (auto& count : counts_) count.store(0, std::memory_order_relaxed);
  }

  // Anyone.
  Counts counts() const {
    Counts out;
    for (std::size_t i = 0; i < kBuckets; ++i) out[i] = counts_[i].load(std::memory_order_relaxed);
    return out;
  }

 private:
  alignas(64) std::array<std::atomic<std::uint64_t>, kBuckets> counts_{};
};

}  // namespace gristmill
