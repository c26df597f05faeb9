#include "learner/episodes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/run_board.h"
#include "core/segment.h"
#include "learner/metrics.h"
#include "tests/learner/batch_fixture.h"

namespace gristmill {
namespace {

void end_episode(MadeUpBatch& batch, std::int64_t row, std::int64_t t, float episode_return,
                 std::int32_t length) {
  const auto i = row * batch.view().unroll + t;
  batch.data<float>(kEpisodeReturns)[i] = episode_return;
  batch.data<std::int32_t>(kEpisodeLengths)[i] = length;
}

TEST(EpisodesTest, TakesFinishedEpisodesInTheOrderOfTimeAlsoThoseThatReturnNothing) {
  MadeUpBatch batch(one_number(), 2, 3);
  end_episode(batch, 0, 2, 30, 3);
  end_episode(batch, 1, 0, 0, 1);
  Episodes episodes;
  episodes.add(batch.view());
  EXPECT_EQ(episodes.finished(), 2);
  EXPECT_THAT(episodes.returns(), testing::ElementsAre(0, 30));
  EXPECT_DOUBLE_EQ(episodes.mean_return(), 15);
  EXPECT_DOUBLE_EQ(episodes.mean_length(), 2);
}

TEST(EpisodesTest, MeansAreOverTheLastHundred) {
  MadeUpBatch batch(one_number(), 1, 1);
  Episodes episodes;
  for (int i = 0; i < 150; ++i) {
    end_episode(batch, 0, 0, i < 50 ? 1000.0F : 10.0F, 5);
    episodes.add(batch.view());
    EXPECT_EQ(episodes.window_full(), i >= 99);
  }
  EXPECT_EQ(episodes.finished(), 150);
  EXPECT_DOUBLE_EQ(episodes.mean_return(), 10);
}

TEST(LagHistogramTest, QuantilesAndMaximumAreOfTheLagsAdded) {
  LagHistogram lags;
  for (const int lag : {0, 1, 1, 1, 2, 2, 7}) lags.add(lag);
  EXPECT_EQ(lags.quantile(0.5), 1);
  EXPECT_EQ(lags.quantile(0.9), 7);
  EXPECT_EQ(lags.max(), 7);
  EXPECT_DOUBLE_EQ(lags.mean(), 2);
}

TEST(IntervalMetricsTest, FiguresThatDoNotExistYetAreAbsent) {
  IntervalMetrics interval;
  const Metrics metrics = interval.finish(Episodes(), {{"time/total_timesteps", 0}});
  EXPECT_TRUE(metrics.contains("time/fps"));
  EXPECT_TRUE(metrics.contains("time/total_timesteps"));
  EXPECT_FALSE(metrics.contains("rollout/ep_rew_mean"));
  EXPECT_FALSE(metrics.contains("train/value_loss"));
}

TEST(IntervalMetricsTest, AveragesUpdatesUnderTheNamesThatDashboardsKnowAndStartsAfresh) {
  IntervalMetrics interval;
  interval.add_update({.loss = {.value_loss = 1, .entropy = 0.5}, .grad_norm = 2, .learning_rate = 0.1});
  interval.add_update({.loss = {.value_loss = 3, .entropy = 0.7}, .grad_norm = 4, .learning_rate = 0.2});
  const Metrics metrics = interval.finish(Episodes(), {});
  EXPECT_DOUBLE_EQ(metrics.at("train/value_loss"), 2);
  EXPECT_DOUBLE_EQ(metrics.at("train/entropy_loss"), -0.6);
  EXPECT_DOUBLE_EQ(metrics.at("train/grad_norm"), 3);
  EXPECT_DOUBLE_EQ(metrics.at("train/learning_rate"), 0.2);
  EXPECT_FALSE(interval.finish(Episodes(), {}).contains("train/value_loss"));
}

TEST(WorkerSharesTest, AddUpAllWorkersStagesToOne) {
  const auto board = RunBoard::create(segment_name("shares", "board"), 2);
  EXPECT_TRUE(worker_shares(*board).empty());
  board->row(0).add(Counter::kEnvironmentNs, 300);
  board->row(1).add(Counter::kEnvironmentNs, 300);
  board->row(1).add(Counter::kInferenceNs, 350);
  board->row(0).add(Counter::kCopyNs, 50);
  const Metrics shares = worker_shares(*board);
  EXPECT_DOUBLE_EQ(shares.at("workers/environment_share"), 0.6);
  EXPECT_DOUBLE_EQ(shares.at("workers/inference_share"), 0.35);
  EXPECT_DOUBLE_EQ(shares.at("workers/copy_share"), 0.05);
  EXPECT_DOUBLE_EQ(shares.at("workers/space_wait_share"), 0);
}

}  // namespace
}  // namespace gristmill
