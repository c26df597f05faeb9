#include "rollout/finite.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace gristmill {
namespace {

TEST(FiniteTest, FindsNothingAmongFiniteNumbersHoweverLargeOrSmall) {
  const std::vector<float> values{0.0F, -0.0F, 3e38F, -3e38F, std::numeric_limits<float>::denorm_min()};
  EXPECT_EQ(first_not_finite(values), -1);
  EXPECT_EQ(first_not_finite({}), -1);
}

TEST(FiniteTest, NamesTheFirstOfSeveral) {
  std::vector<float> values(1000, 1.0F);
  values[500] = std::nanf("");
  values[731] = INFINITY;
  EXPECT_EQ(first_not_finite(values), 500);
  values[17] = -INFINITY;
  EXPECT_EQ(first_not_finite(values), 17);
}

}  // namespace
}  // namespace gristmill
