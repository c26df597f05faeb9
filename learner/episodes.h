#pragma once

// Returns and lengths of finished episodes, out of the trajectories that carry them. No torch.

#include <cstdint>
#include <deque>

#include "learner/batch.h"

namespace gristmill {

class Episodes {
 public:
  static constexpr std::size_t kWindow = 100;

  void add(const BatchView& batch);
  void restore(std::int64_t finished, std::deque<float> returns, std::deque<float> lengths);

  std::int64_t finished() const { return finished_; }
  bool window_full() const { return returns_.size() == kWindow; }
  // Means over the last kWindow episodes; 0 before the first has finished.
  double mean_return() const;
  double mean_length() const;
  // Oldest first.
  const std::deque<float>& returns() const { return returns_; }
  const std::deque<float>& lengths() const { return lengths_; }

 private:
  std::int64_t finished_ = 0;
  std::deque<float> returns_, lengths_;
};

}  // namespace gristmill
