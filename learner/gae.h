#pragma once

// Generalised advantage estimation (Schulman et al. 2016), for trajectories of the current policy.
// A pure function of contiguous arrays; no torch. Any thread.

#include <span>

#include "learner/vtrace.h"

namespace gristmill {

struct GaeOptions {
  double gamma = 0.99;
  double lambda = 0.95;
};

// delta_t = r_t + gamma * next_value_t - V_t;  adv_t = delta_t + gamma * lambda * adv_{t+1}, with
// next_value and episodes' ends as in vtrace(). returns = advantages + values, both [n, T].
// Allocates nothing. Throws std::invalid_argument naming the array whose size is wrong.
void gae(const TrajectoryRows& rows, const GaeOptions& options, std::span<float> returns,
         std::span<float> advantages);

}  // namespace gristmill
