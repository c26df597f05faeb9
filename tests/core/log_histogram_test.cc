#include "core/log_histogram.h"

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <numeric>

namespace gristmill {
namespace {

TEST(LogHistogram, EveryBucketBeginsAtItsLowerBoundAndEndsBeforeTheNext) {
  for (std::size_t bucket = 0; bucket < LogHistogram::kBuckets; ++bucket) {
    const std::uint64_t low = LogHistogram::lower_bound(bucket);
    EXPECT_EQ(LogHistogram::bucket_of(low), bucket);
    if (bucket > 0) {
      EXPECT_EQ(LogHistogram::bucket_of(low - 1), bucket - 1);
    }
  }
}

TEST(LogHistogram, ABucketIsNoWiderThanAQuarterOfItsLowerBound) {
  for (std::size_t bucket = 4; bucket + 1 < LogHistogram::kBuckets; ++bucket) {
    const std::uint64_t low = LogHistogram::lower_bound(bucket);
    EXPECT_LE((LogHistogram::lower_bound(bucket + 1) - low) * 4, low);
  }
}

TEST(LogHistogram, TheLastBucketTakesWhateverIsLarger) {
  EXPECT_EQ(LogHistogram::bucket_of(std::numeric_limits<std::uint64_t>::max()), LogHistogram::kBuckets - 1);
  EXPECT_GE(LogHistogram::lower_bound(LogHistogram::kBuckets - 1), std::uint64_t{3600} * 1'000'000'000);
}

TEST(LogHistogram, CountsWhatWasRecordedUntilItIsCleared) {
  const auto histogram = std::make_unique<LogHistogram>();
  histogram->record(0);
  histogram->record(1000, 5);
  histogram->record(1001);
  auto counts = histogram->counts();
  EXPECT_EQ(counts[0], 1u);
  EXPECT_EQ(counts[LogHistogram::bucket_of(1000)], 6u);
  EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}), 7u);
  histogram->clear();
  counts = histogram->counts();
  EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}), 0u);
}

}  // namespace
}  // namespace gristmill
