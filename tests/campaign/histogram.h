#pragma once

// Durations in logarithmic buckets: four to each doubling, so a quantile is exact to a fifth.

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace gristmill::campaign {

// In shared memory. One writer at a time; anyone may read.
class Histogram {
 public:
  static constexpr int kBuckets = 4 * 44;  // up to hours, in nanoseconds

  void add(std::uint64_t ns) {
    increase(buckets_[bucket_of(ns)], 1);
    if (ns > max_.load(std::memory_order_relaxed)) max_.store(ns, std::memory_order_relaxed);
  }
  void add(const Histogram& other) {
    for (int b = 0; b < kBuckets; ++b)
      increase(buckets_[b], other.buckets_[b].load(std::memory_order_relaxed));
    max_.store(std::max(max(), other.max()), std::memory_order_relaxed);
  }

  std::uint64_t max() const { return max_.load(std::memory_order_relaxed); }
  std::uint64_t count() const {
    std::uint64_t sum = 0;
    for (const auto& bucket : buckets_) sum += bucket.load(std::memory_order_relaxed);
    return sum;
  }
  // The upper end of the bucket that holds the quantile (0 … 1); 0 when empty.
  std::uint64_t quantile(double q) const {
    const auto all = static_cast<double>(count());
    double before = 0;
    for (int b = 0; b < kBuckets; ++b) {
      before += static_cast<double>(buckets_[b].load(std::memory_order_relaxed));
      if (before > 0 && before >= q * all) return std::min(upper_end(b), max());
    }
    return max();
  }

 private:
  static int bucket_of(std::uint64_t ns) {
    if (ns < 4) return static_cast<int>(ns);
    const int octave = static_cast<int>(std::bit_width(ns)) - 1;  // >= 2
    return std::min(4 * (octave - 1) + static_cast<int>(ns >> (octave - 2) & 3), kBuckets - 1);
  }
  static std::uint64_t upper_end(int bucket) {
    if (bucket < 4) return static_cast<std::uint64_t>(bucket);
    const int octave = bucket / 4 + 1;
    return ((std::uint64_t{5} + static_cast<std::uint64_t>(bucket % 4)) << (octave - 2)) - 1;
  }
  static void increase(std::atomic<std::uint64_t>& word, std::uint64_t by) {
    word.store(word.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  }

  std::atomic<std::uint64_t> buckets_[kBuckets]{};
  std::atomic<std::uint64_t> max_{0};
};

}  // namespace gristmill::campaign
