#include "rollout/trajectory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace gristmill {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

EnvironmentSpec images_with_discrete_actions() {
  EnvironmentSpec spec;
  spec.observation_dtype = DType::kUInt8;
  spec.observation_shape = {84, 84};
  spec.action_count = 4;
  return spec;
}

TEST(TrajectoryFields, AreValidForTheQueueAndNamedInOrder) {
  const FieldSpecs fields = trajectory_fields(images_with_discrete_actions(), 16);
  ASSERT_EQ(fields.size(), kTrajectoryFieldCount);
  EXPECT_NO_THROW(validate(fields));
  EXPECT_EQ(field_index(fields, "observations"), kObservations);
  EXPECT_EQ(field_index(fields, "final_values"), kFinalValues);
  EXPECT_EQ(field_index(fields, "slot"), kSlot);
}

TEST(TrajectoryFields, ObservationsAndValuesHaveOneMoreStepForTheBootstrap) {
  const FieldSpecs fields = trajectory_fields(images_with_discrete_actions(), 16);
  EXPECT_EQ(fields[kObservations].dtype, DType::kUInt8);
  EXPECT_THAT(fields[kObservations].shape, ElementsAre(17, 84, 84));
  EXPECT_THAT(fields[kValues].shape, ElementsAre(17));
  EXPECT_THAT(fields[kRewards].shape, ElementsAre(16));
  EXPECT_THAT(fields[kVersion].shape, IsEmpty());
}

TEST(TrajectoryFields, ActionsFollowTheActionSpace) {
  EXPECT_EQ(trajectory_fields(images_with_discrete_actions(), 8)[kActions],
            (FieldSpec{"actions", DType::kInt32, {8}}));
  EnvironmentSpec continuous;
  continuous.observation_shape = {3};
  continuous.action_dims = 2;
  EXPECT_EQ(trajectory_fields(continuous, 8)[kActions], (FieldSpec{"actions", DType::kFloat32, {8, 2}}));
}

TEST(TrajectoryFields, AnUnrollBelowOneIsRefused) {
  EXPECT_THROW(trajectory_fields(images_with_discrete_actions(), 0), std::invalid_argument);
}

}  // namespace
}  // namespace gristmill
