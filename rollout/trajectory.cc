#include "rollout/trajectory.h"

#include <stdexcept>
#include <string>

namespace gristmill {

FieldSpecs trajectory_fields(const EnvironmentSpec& environment, std::int64_t unroll) {
  if (unroll < 1) {
    throw std::invalid_argument("trajectory_fields: unroll is " + std::to_string(unroll) +
                                "; expected at least 1 step");
  }
  std::vector<std::int64_t> observations = {unroll + 1};
  observations.insert(observations.end(), environment.observation_shape.begin(),
                      environment.observation_shape.end());
  const FieldSpec actions = environment.discrete()
                                ? FieldSpec{"actions", DType::kInt32, {unroll}}
                                : FieldSpec{"actions", DType::kFloat32, {unroll, environment.action_dims}};
  FieldSpecs fields(kTrajectoryFieldCount);
  fields[kObservations] = {"observations", environment.observation_dtype, observations};
  fields[kActions] = actions;
  fields[kRewards] = {"rewards", DType::kFloat32, {unroll}};
  fields[kTerminated] = {"terminated", DType::kBool, {unroll}};
  fields[kTruncated] = {"truncated", DType::kBool, {unroll}};
  fields[kLogProbs] = {"log_probs", DType::kFloat32, {unroll}};
  fields[kValues] = {"values", DType::kFloat32, {unroll + 1}};
  fields[kFinalValues] = {"final_values", DType::kFloat32, {unroll}};
  fields[kEpisodeReturns] = {"episode_returns", DType::kFloat32, {unroll}};
  fields[kEpisodeLengths] = {"episode_lengths", DType::kInt32, {unroll}};
  fields[kVersion] = {"version", DType::kInt64, {}};
  fields[kWorker] = {"worker", DType::kInt32, {}};
  fields[kSlot] = {"slot", DType::kInt32, {}};
  return fields;
}

}  // namespace gristmill
