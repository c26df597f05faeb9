#include "core/spin_budget.h"

#include <gtest/gtest.h>

namespace gristmill {
namespace {

using std::chrono::nanoseconds;

TEST(SpinBudget, IsNothingWhereCoresAreScarce) {
  for (const int cores : {1, 2}) {
    SpinBudget budget(cores);
    budget.paid_off(nanoseconds(3000));
    EXPECT_EQ(budget.now(), nanoseconds(0));
  }
}

TEST(SpinBudget, IsTwiceWhatPaidOffUpToTheMost) {
  SpinBudget budget(8);
  budget.paid_off(nanoseconds(4000));
  EXPECT_EQ(budget.now(), nanoseconds(8000));
  budget.paid_off(nanoseconds(1'000'000));
  EXPECT_EQ(budget.now(), SpinBudget::kMost);
}

TEST(SpinBudget, FollowsShorterWaitsDown) {
  SpinBudget budget(8);
  budget.paid_off(nanoseconds(8000));
  for (int i = 0; i < 100; ++i) budget.paid_off(nanoseconds(1000));
  EXPECT_LT(budget.now(), nanoseconds(2100));
  EXPECT_GE(budget.now(), nanoseconds(2000));
}

TEST(SpinBudget, GivesUpWhatIsInVainAndTriesAgainNowAndThen) {
  SpinBudget budget(8);
  budget.paid_off(nanoseconds(10'000));
  for (int i = 0; i < 100; ++i) budget.in_vain();
  int tries = 0;
  for (std::uint32_t i = 0; i < 4 * SpinBudget::kTryEvery; ++i) {
    const nanoseconds now = budget.now();
    if (now == nanoseconds(0)) continue;
    EXPECT_EQ(now, SpinBudget::kLeast);
    ++tries;
    budget.in_vain();
  }
  EXPECT_EQ(tries, 4);
  budget.paid_off(nanoseconds(500));
  EXPECT_EQ(budget.now(), SpinBudget::kLeast);
}

}  // namespace
}  // namespace gristmill
