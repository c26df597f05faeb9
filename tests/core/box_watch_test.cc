// Waiting for the next version.

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "core/box.h"
#include "tests/core/box_fixture.h"
#include "tests/core/box_scalars_fixture.h"
#include "tests/core/forked.h"

namespace gristmill {
namespace {

using namespace box_test;

TEST(BoxWatch, WatchWakesOnTheNextVersion) {
  const auto box = make_box();
  const SharedWithChildren<std::atomic<int>> watching;
  Forked watcher([&] {
    std::uint64_t seen = 0;
    for (int i = 0; i < 100; ++i) {
      *watching = i + 1;
      const auto next = box->watch(seen, Deadline::in(30s));
      if (!next || *next <= seen) return 1;
      seen = *next;
      if (seen == 100) return 0;
    }
    return 2;
  });
  for (int v = 1; v <= 100; ++v) {
    ASSERT_TRUE(eventually([&] { return *watching >= v; }));
    ASSERT_EQ(publish(*box, v).outcome, Outcome::kOk);
  }
  EXPECT_TRUE(watcher.succeeds());
}

TEST(BoxWatch, WatchGivesUpAtItsDeadlineAndReturnsAtOnceForAnOldVersion) {
  const auto box = make_box();
  EXPECT_EQ(box->watch(0, Deadline::in(20ms)), std::nullopt);
  publish(*box, 1);
  EXPECT_EQ(box->watch(0, Deadline::now()), 1u);
  EXPECT_EQ(box->watch(1, Deadline::now()), std::nullopt);
}

TEST_F(BoxScalars, AWatcherThatSpinsSeesTheNextVersionAndGivesUpAtTheDeadlineAllTheSame) {
  std::thread writer([&] { box_->write_int(1, 1, Deadline::never()); });
  EXPECT_EQ(box_->watch(0, Deadline::in(60s), std::chrono::nanoseconds(30s)), 1u);
  writer.join();
  EXPECT_EQ(box_->watch(1, Deadline::in(5ms), std::chrono::nanoseconds(30s)), std::nullopt);
}

TEST_F(BoxScalars, ManyWatchersAllSeeANewVersion) {
  constexpr int kWatchers = 24;
  const SharedWithChildren<std::atomic<int>> ready;
  std::vector<Forked> watchers;
  for (int w = 0; w < kWatchers; ++w) {
    watchers.emplace_back([&] {
      for (std::uint64_t seen = 0; seen < 20; ++seen) {
        ++*ready;
        if (!box_->watch(seen, Deadline::in(60s), seen % 2 == 0 ? std::nullopt : std::optional(10us)))
          return 1;
      }
      return 0;
    });
  }
  for (int v = 1; v <= 20; ++v) {
    ASSERT_TRUE(eventually([&] { return *ready >= kWatchers * v; }));
    box_->write_int(1, v, Deadline::never());
  }
  for (Forked& watcher : watchers) EXPECT_TRUE(watcher.succeeds());
}

TEST_F(BoxScalars, WatchersThatAreKilledInTheirSleepKeepNobodyFromBeingWoken) {
  const SharedWithChildren<std::atomic<int>> ready;
  std::vector<Forked> watchers;
  for (int w = 0; w < 8; ++w) {
    watchers.emplace_back([&] {
      ++*ready;
      return box_->watch(0, Deadline::in(60s)) ? 0 : 1;
    });
  }
  ASSERT_TRUE(eventually([&] { return *ready == 8; }));
  for (int w = 0; w < 8; w += 2) watchers[static_cast<std::size_t>(w)].kill();
  box_->write_int(1, 1, Deadline::never());
  for (int w = 1; w < 8; w += 2) EXPECT_TRUE(watchers[static_cast<std::size_t>(w)].succeeds());
}

}  // namespace
}  // namespace gristmill
