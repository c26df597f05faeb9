#pragma once

// Batches made up in memory, for tests of what the learner does with them.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "learner/batch.h"
#include "rollout/trajectory.h"

namespace gristmill {

class MadeUpBatch {
 public:
  MadeUpBatch(const EnvironmentSpec& environment, std::int64_t trajectories, std::int64_t unroll)
      : specs_(trajectory_fields(environment, unroll)) {
    view_.specs = &specs_;
    view_.trajectories = trajectories;
    view_.unroll = unroll;
    for (std::size_t f = 0; f < specs_.size(); ++f) {
      storage_.emplace_back(specs_[f].bytes() * static_cast<std::size_t>(trajectories));
      view_.fields[f] = storage_[f].data();
    }
  }
  MadeUpBatch(const MadeUpBatch&) = delete;
  MadeUpBatch& operator=(const MadeUpBatch&) = delete;

  const BatchView& view() const { return view_; }
  template <class T>
  T* data(TrajectoryField field) {
    return reinterpret_cast<T*>(storage_[field].data());
  }
  template <class T>
  void fill(TrajectoryField field, T value) {
    const auto count = storage_[field].size() / sizeof(T);
    for (std::size_t i = 0; i < count; ++i) data<T>(field)[i] = value;
  }

 private:
  FieldSpecs specs_;
  std::vector<std::vector<std::byte>> storage_;
  BatchView view_;
};

inline EnvironmentSpec one_number(std::int64_t actions = 2) {
  EnvironmentSpec spec;
  spec.observation_shape = {1};
  spec.action_count = actions;
  return spec;
}

}  // namespace gristmill
