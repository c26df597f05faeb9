#pragma once

// V-trace and GAE as the papers write them: sums from each step forward, in double, without any
// recursion or sharing between steps. Slow, and independent of learner/vtrace.cc and learner/gae.cc.

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "learner/gae.h"
#include "learner/vtrace.h"

namespace gristmill {

// Trajectories that own their memory.
struct Trajectories {
  std::int64_t n = 0, steps = 0;
  std::vector<float> values, rewards, final_values, log_ratios;
  std::vector<std::uint8_t> terminated, truncated;

  Trajectories(std::int64_t count, std::int64_t length)
      : n(count),
        steps(length),
        values(static_cast<std::size_t>(n * (steps + 1))),
        rewards(static_cast<std::size_t>(n * steps)),
        final_values(rewards.size()),
        log_ratios(rewards.size()),
        terminated(rewards.size()),
        truncated(rewards.size()) {}

  TrajectoryRows rows() const { return {n, steps, values, rewards, terminated, truncated, final_values}; }
};

// One trajectory of three steps; V = 1, 2, 3 and a bootstrap of 4; r = 1, 0, 2.
inline Trajectories three_steps() {
  Trajectories t(1, 3);
  t.values = {1, 2, 3, 4};
  t.rewards = {1, 0, 2};
  return t;
}

// Ends of both kinds, at times in the same step and in consecutive ones, in about one step of five.
inline Trajectories random_trajectories(std::int64_t n, std::int64_t steps, unsigned seed,
                                        float ratio_spread = 0.7f) {
  Trajectories t(n, steps);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::bernoulli_distribution ends(0.12);
  for (float& x : t.values) x = 3 * normal(random);
  for (float& x : t.rewards) x = normal(random);
  for (float& x : t.final_values) x = 3 * normal(random);
  for (float& x : t.log_ratios) x = ratio_spread * normal(random);
  for (auto& x : t.terminated) x = ends(random) ? 1 : 0;
  for (auto& x : t.truncated) x = ends(random) ? 1 : 0;
  return t;
}

// One trajectory's view, in double.
struct ReferenceRow {
  const Trajectories& t;
  std::int64_t row;
  double gamma;

  std::size_t at(std::int64_t step) const { return static_cast<std::size_t>(row * t.steps + step); }
  double value(std::int64_t step) const {
    return static_cast<double>(t.values[static_cast<std::size_t>(row * (t.steps + 1) + step)]);
  }
  bool ends(std::int64_t step) const { return t.terminated[at(step)] != 0 || t.truncated[at(step)] != 0; }
  double next_value(std::int64_t step) const {
    if (t.terminated[at(step)] != 0) return 0;
    if (t.truncated[at(step)] != 0) return static_cast<double>(t.final_values[at(step)]);
    return value(step + 1);
  }
  double difference(std::int64_t step) const {
    return static_cast<double>(t.rewards[at(step)]) + gamma * next_value(step) - value(step);
  }
  double ratio(std::int64_t step) const { return std::exp(static_cast<double>(t.log_ratios[at(step)])); }

  // Espeholt et al., equation 1: V(x_s) + sum_k gamma^(k-s) (prod c_i) delta_k.
  double vtrace_target(std::int64_t from, const VTraceOptions& o) const {
    double sum = value(from), weight = 1;
    for (std::int64_t k = from; k < t.steps; ++k) {
      sum += weight * std::min(o.rho_clip, ratio(k)) * difference(k);
      if (ends(k)) break;
      weight *= gamma * o.lambda * std::min(o.c_clip, ratio(k));
    }
    return sum;
  }
  // rho_s (r_s + gamma q_{s+1} - V(x_s)), q mixing target and value of the next state by lambda.
  double vtrace_advantage(std::int64_t step, const VTraceOptions& o) const {
    double next = next_value(step);
    if (!ends(step) && step + 1 < t.steps)
      next = (1 - o.lambda) * next + o.lambda * vtrace_target(step + 1, o);
    const double weight =
        o.pg_rho_clip == VTraceOptions::kUnweighted ? 1 : std::min(o.pg_rho_clip, ratio(step));
    return weight * (static_cast<double>(t.rewards[at(step)]) + gamma * next - value(step));
  }
  // Schulman et al., equation 16: sum_l (gamma lambda)^l delta_{t+l}.
  double gae_advantage(std::int64_t from, double lambda) const {
    double sum = 0, weight = 1;
    for (std::int64_t k = from; k < t.steps; ++k) {
      sum += weight * difference(k);
      if (ends(k)) break;
      weight *= gamma * lambda;
    }
    return sum;
  }
};

}  // namespace gristmill
