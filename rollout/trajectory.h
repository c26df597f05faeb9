#pragma once

// The fields of a trajectory: T steps of one environment slot. No torch here.

#include <cstdint>

#include "core/field_spec.h"
#include "rollout/environment.h"

namespace gristmill {

// Field indices in the trajectory queue, in the order of trajectory_fields().
enum TrajectoryField : std::size_t {
  kObservations,    // [T+1, observation…]: the last is the bootstrap state
  kActions,         // [T] int32, or [T, action_dims] float32
  kRewards,         // [T] float32, as the environment gave them
  kTerminated,      // [T] bool
  kTruncated,       // [T] bool
  kLogProbs,        // [T] float32, of the action under the acting policy
  kValues,          // [T+1] float32, under the acting policy
  kFinalValues,     // [T] float32: value of the final observation where truncated, else 0
  kEpisodeReturns,  // [T] float32: undiscounted return where an episode ended, else 0
  kEpisodeLengths,  // [T] int32: steps of the episode that ended here, else 0
  kVersion,         // [] int64: parameters at the first step
  kWorker,          // [] int32
  kSlot,            // [] int32: environment's index within the worker
  kTrajectoryFieldCount,
};

FieldSpecs trajectory_fields(const EnvironmentSpec& environment, std::int64_t unroll);

}  // namespace gristmill
