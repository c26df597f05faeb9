#include "rollout/trajectory_buffer.h"

#include <gtest/gtest.h>

#include <cstring>

namespace gristmill {
namespace {

EnvironmentSpec two_numbers() {
  EnvironmentSpec spec;
  spec.observation_shape = {2};
  spec.action_count = 2;
  return spec;
}

void store(Rows rows, std::int64_t i, float first, float second) {
  const float pair[2] = {first, second};
  std::memcpy(rows.row(i), pair, sizeof(pair));
}

TEST(TrajectoryBufferTest, RowsOfAStepLieInsideEachEnvironmentsTrajectory) {
  const TrajectoryBuffer buffer(two_numbers(), 3, 4);
  store(buffer.at(kObservations, 2), 1, 5, 6);
  const auto* observations = reinterpret_cast<const float*>(buffer.fields()[kObservations]);
  // [environment 1][step 2] of [3][4 + 1][2]
  EXPECT_EQ(observations[(1 * 5 + 2) * 2], 5);
  EXPECT_EQ(observations[(1 * 5 + 2) * 2 + 1], 6);
}

TEST(TrajectoryBufferTest, CarriesTheLastObservationToTheNextTrajectorysStart) {
  TrajectoryBuffer buffer(two_numbers(), 2, 3);
  store(buffer.at(kObservations, 3), 0, 1, 2);
  store(buffer.at(kObservations, 3), 1, 3, 4);
  buffer.carry_observations();
  const Rows first = buffer.at(kObservations, 0);
  EXPECT_EQ(*reinterpret_cast<const float*>(first.row(0)), 1);
  EXPECT_EQ(*reinterpret_cast<const float*>(first.row(1)), 3);
}

TEST(TrajectoryBufferTest, ClearsOnlyWhatMostStepsLeaveUnwritten) {
  TrajectoryBuffer buffer(two_numbers(), 1, 2);
  *reinterpret_cast<float*>(buffer.at(kEpisodeReturns, 1).row(0)) = 9;
  *reinterpret_cast<float*>(buffer.at(kRewards, 1).row(0)) = 8;
  buffer.clear_ends();
  EXPECT_EQ(*reinterpret_cast<float*>(buffer.at(kEpisodeReturns, 1).row(0)), 0);
  EXPECT_EQ(*reinterpret_cast<float*>(buffer.at(kRewards, 1).row(0)), 8);
}

}  // namespace
}  // namespace gristmill
