#include "rollout/activation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace gristmill {
namespace {

float activated(Activation activation, float x) {
  std::vector<float> rows{x};
  add_bias_and_activate(activation, rows, std::vector<float>{0});
  return rows[0];
}

TEST(ActivationTest, TanhIsTheLibrarysWithin3e7OverItsWholeRange) {
  for (double x = -30; x <= 30; x += 1e-3) {
    const auto rounded = static_cast<float>(x);
    ASSERT_NEAR(activated(Activation::kTanh, rounded), std::tanh(static_cast<double>(rounded)), 3e-7) << x;
  }
  EXPECT_EQ(activated(Activation::kTanh, INFINITY), 1);
  EXPECT_EQ(activated(Activation::kTanh, -INFINITY), -1);
  EXPECT_EQ(activated(Activation::kTanh, 0), 0);
}

TEST(ActivationTest, EluAndReluAreTheirDefinitions) {
  for (double x = -20; x <= 20; x += 1e-2) {
    const auto rounded = static_cast<float>(x);
    ASSERT_NEAR(activated(Activation::kElu, rounded), x > 0 ? rounded : std::expm1(rounded), 3e-7) << x;
    ASSERT_EQ(activated(Activation::kRelu, rounded), std::max(rounded, 0.0F)) << x;
  }
}

TEST(ActivationTest, NaNStaysNaNInAll) {
  for (const auto activation : {Activation::kTanh, Activation::kRelu, Activation::kElu}) {
    EXPECT_TRUE(std::isnan(activated(activation, std::numeric_limits<float>::quiet_NaN())));
  }
}

TEST(ActivationTest, EachColumnGetsItsOwnBias) {
  std::vector<float> rows{1, 2, 3, -10, 20, -30};
  add_bias_and_activate(Activation::kRelu, rows, std::vector<float>{0.5F, -5, 1});
  EXPECT_EQ(rows, (std::vector<float>{1.5F, 0, 4, 0, 15, 0}));
}

TEST(ActivationTest, DerivativesAreTheSlopesOfTheActivations) {
  for (const auto activation : {Activation::kTanh, Activation::kRelu, Activation::kElu}) {
    for (const double x : {-2.5, -0.3, 0.4, 1.7}) {
      const double step = 1e-2;
      const double slope = (static_cast<double>(activated(activation, static_cast<float>(x + step))) -
                            static_cast<double>(activated(activation, static_cast<float>(x - step)))) /
                           (2 * step);
      std::vector<float> gradient{3};
      multiply_by_derivative(activation, std::vector<float>{activated(activation, static_cast<float>(x))},
                             gradient);
      EXPECT_NEAR(gradient[0], 3 * slope, 1e-3) << x;
    }
  }
}

TEST(ActivationTest, SumsColumnsOverAllRows) {
  std::vector<float> sums(2, 99);
  sum_rows(std::vector<float>{1, 10, 2, 20, 3, 30}, sums);
  EXPECT_EQ(sums, (std::vector<float>{6, 60}));
}

}  // namespace
}  // namespace gristmill
