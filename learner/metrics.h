#pragma once

// What a run tells about itself at each log interval. No torch.

#include <chrono>
#include <cstdint>
#include <map>

#include "core/run_board.h"
#include "learner/episodes.h"
#include "learner/losses.h"
#include "learner/train.h"

namespace gristmill {

// How many versions old trajectories were when they were learned from.
class LagHistogram {
 public:
  void add(std::int64_t lag) { ++counts_[lag]; }
  void clear() { counts_.clear(); }
  bool empty() const { return counts_.empty(); }
  double quantile(double q) const;  // 0 when empty
  double max() const;
  double mean() const;

 private:
  std::map<std::int64_t, std::int64_t> counts_;
};

// Where the workers' time went since each was started, all together: "workers/<stage>_share" for
// environment, inference, assemble, space_wait (for a place in the queue), copy and parameters; they add up
// to 1. Empty before anything was measured.
Metrics worker_shares(RunBoard& board);

// Of one update, as it goes into the figures.
struct UpdateFigures {
  LossStats loss;
  double grad_norm = 0;
  double learning_rate = 0;
};

// Sums up a log interval. One thread.
class IntervalMetrics {
 public:
  using Clock = std::chrono::steady_clock;

  void add_update(const UpdateFigures& figures);
  void add_lag(std::int64_t lag) { lag_.add(lag); }
  void add_frames(std::int64_t frames) { frames_ += frames; }
  void add_wait(Clock::duration waited) { waited_ += waited; }

  // The interval's figures, and a fresh interval. `totals` are added as they are.
  Metrics finish(const Episodes& episodes, const Metrics& totals);

 private:
  Clock::time_point begin_ = Clock::now();
  Clock::duration waited_{};
  std::int64_t frames_ = 0;
  std::int64_t updates_ = 0;
  UpdateFigures sums_;
  double learning_rate_ = 0;
  LagHistogram lag_;
};

}  // namespace gristmill
