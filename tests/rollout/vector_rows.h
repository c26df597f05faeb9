#pragma once

// Buffers for stepping a VectorEnvironment in tests.

#include <cstring>
#include <memory>
#include <vector>

#include "rollout/environment.h"

namespace gristmill {

// Rows of T with `padding` elements after each, filled with `fill` so that stray writes show.
template <typename T>
class RowBuffer {
 public:
  RowBuffer(std::int64_t rows, std::int64_t width, std::int64_t padding, T fill)
      : width_(width),
        pitch_(width + padding),
        fill_(fill),
        size_(static_cast<std::size_t>(rows * pitch_)),
        values_(std::make_unique<T[]>(size_)) {
    for (std::size_t i = 0; i < size_; ++i) values_[i] = fill;
  }
  Rows rows() {
    return {reinterpret_cast<std::byte*>(values_.get()), pitch_ * static_cast<std::ptrdiff_t>(sizeof(T))};
  }
  T* row(std::int64_t i) { return values_.get() + i * pitch_; }
  std::vector<T> values(std::int64_t i) { return std::vector<T>(row(i), row(i) + width_); }
  bool padding_untouched() const {
    for (std::size_t i = 0; i < size_; ++i) {
      if (static_cast<std::int64_t>(i) % pitch_ >= width_ && values_[i] != fill_) return false;
    }
    return true;
  }

 private:
  std::int64_t width_, pitch_;
  T fill_;
  std::size_t size_;
  std::unique_ptr<T[]> values_;
};

// One vector's buffers, with padding between the rows of each.
struct VectorBuffers {
  explicit VectorBuffers(const VectorEnvironment& environment, std::int64_t padding = 3)
      : observations(environment.size(), environment.spec().observation_elements(), padding, -77),
        finals(environment.size(), environment.spec().observation_elements(), padding, -77),
        rewards(environment.size(), 1, padding, -77),
        terminated(environment.size(), 1, padding, true),
        truncated(environment.size(), 1, padding, true),
        actions(environment.size(), 1, padding, 0) {}

  StepRows out() {
    return {.observations = observations.rows(),
            .rewards = rewards.rows(),
            .terminated = terminated.rows(),
            .truncated = truncated.rows(),
            .final_observations = finals.rows()};
  }
  bool padding_untouched() const {
    return observations.padding_untouched() && finals.padding_untouched() && rewards.padding_untouched() &&
           terminated.padding_untouched() && truncated.padding_untouched();
  }

  RowBuffer<float> observations, finals, rewards;
  RowBuffer<bool> terminated, truncated;
  RowBuffer<std::int32_t> actions;
};

}  // namespace gristmill
