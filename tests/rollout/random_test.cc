#include "rollout/random.h"

#include <gtest/gtest.h>

#include <array>

namespace gristmill {
namespace {

TEST(Random, SplitMixIsThePublishedOne) {
  // First outputs of the reference implementation seeded with 1234567.
  EXPECT_EQ(splitmix64(1234567), 6457827717110365317U);
  EXPECT_EQ(splitmix64(1234567 + 0x9e3779b97f4a7c15U), 3203168211198807973U);
}

TEST(Random, TheSameSeedGivesTheSameNumbers) {
  Random a(5), b(5), c(6);
  bool differs = false;
  for (int i = 0; i < 100; ++i) {
    const auto number = a.next();
    EXPECT_EQ(number, b.next());
    differs |= number != c.next();
  }
  EXPECT_TRUE(differs);
}

TEST(Random, UniformNumbersFillTheirRangeEvenly) {
  Random random(0);
  std::array<int, 10> buckets{};
  double sum = 0;
  for (int i = 0; i < 100'000; ++i) {
    const double u = random.uniform(-2, 3);
    ASSERT_GE(u, -2);
    ASSERT_LT(u, 3);
    sum += u;
    ++buckets[static_cast<std::size_t>((u + 2) * 2)];
  }
  EXPECT_NEAR(sum / 100'000, 0.5, 0.02);                            // standard error 0.0046
  for (const int count : buckets) EXPECT_NEAR(count, 10'000, 500);  // standard deviation 95
}

TEST(Random, BelowStaysBelowAndReachesAll) {
  Random random(0);
  std::array<int, 3> seen{};
  for (int i = 0; i < 300; ++i) {
    const auto n = random.below(3);
    ASSERT_GE(n, 0);
    ASSERT_LT(n, 3);
    ++seen[static_cast<std::size_t>(n)];
  }
  for (const int count : seen) EXPECT_GT(count, 50);
}

}  // namespace
}  // namespace gristmill
