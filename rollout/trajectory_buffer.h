#pragma once

// A worker's own buffer of E trajectories under construction. Environments and policy write right
// into it, row i of step t lying inside trajectory i, so that a put is one copy per field.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/field_spec.h"
#include "rollout/environment.h"
#include "rollout/trajectory.h"

namespace gristmill {

class TrajectoryBuffer {
 public:
  TrajectoryBuffer(const EnvironmentSpec& environment, std::int64_t count, std::int64_t unroll);

  // Rows of field `field` at step t: one per environment.
  Rows at(TrajectoryField field, std::int64_t t) const;
  // For TrajectoryQueue::put_many: [count, shape...] of each field.
  std::span<const std::byte* const> fields() const { return pointers_; }
  const FieldSpecs& specs() const { return specs_; }
  // Step T's observations become step 0's of the next trajectories.
  void carry_observations();
  // Zeroes what most steps leave unwritten: final values, episode returns and lengths.
  void clear_ends();

 private:
  FieldSpecs specs_;
  std::int64_t count_ = 0;
  std::int64_t unroll_ = 0;
  std::size_t step_bytes_[kTrajectoryFieldCount] = {};
  std::vector<std::vector<std::byte>> storage_;
  std::vector<const std::byte*> pointers_;
};

}  // namespace gristmill
