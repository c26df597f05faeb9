#pragma once

// n trajectories of T steps as the learner sees them: pointers into the queue's rings (no copy), or
// into a gathered copy where rows must be left out or put in order. No torch.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/field_spec.h"
#include "core/trajectory_queue.h"
#include "rollout/trajectory.h"

namespace gristmill {

// Borrows the memory it points to.
struct BatchView {
  const FieldSpecs* specs = nullptr;  // of one trajectory
  std::int64_t trajectories = 0;      // n
  std::int64_t unroll = 0;            // T
  std::array<const std::byte*, kTrajectoryFieldCount> fields = {};

  // Trajectories [begin, begin + count).
  BatchView slice(std::int64_t begin, std::int64_t count) const;
  // All elements of a field, [n, shape…] flattened. T must be the field's element type.
  template <class T>
  std::span<const T> field(TrajectoryField index) const {
    const auto count = static_cast<std::size_t>(trajectories * (*specs)[index].elements());
    return {reinterpret_cast<const T*>(fields[index]), count};
  }
};

// A batch in place. `queue` and `batch` must outlive the view.
BatchView view_of(const TrajectoryQueue& queue, const TrajectoryQueue::Batch& batch);

// A copy of chosen trajectories, in the order given.
class GatheredBatch {
 public:
  // rows: indices into `from`.
  void gather(const BatchView& from, std::span<const std::int64_t> rows);
  const BatchView& view() const { return view_; }

 private:
  BatchView view_;
  std::array<std::vector<std::byte>, kTrajectoryFieldCount> storage_;
};

// Which trajectories to learn from, and in what order: those acted under a version >= oldest; where
// `ordered`, sorted by worker and environment slot, so that the result does not depend on which
// worker was faster.
std::vector<std::int64_t> choose_rows(const BatchView& batch, std::int64_t oldest, bool ordered);
// True for 0, 1, 2, … count-1: nothing to gather.
bool is_identity(std::span<const std::int64_t> rows, std::int64_t count);

}  // namespace gristmill
