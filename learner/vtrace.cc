#include "learner/vtrace.h"

#include <stdexcept>
#include <string>

#include "rollout/vector_math.h"

namespace gristmill {
namespace {

void require_size(const char* name, std::size_t size, std::int64_t n, std::int64_t steps) {
  const auto expected = static_cast<std::size_t>(n * steps);
  if (size == expected) return;
  throw std::invalid_argument(std::string(name) + " has " + std::to_string(size) + " elements, expected " +
                              std::to_string(n) + " * " + std::to_string(steps) + " = " +
                              std::to_string(expected));
}

// Apart from the recursion below, whose steps wait for each other: this vectorises.
GRISTMILL_MULTIVERSION
void exponentials(const float* log_ratios, std::size_t count, float* ratios) {
#pragma omp simd
  for (std::size_t i = 0; i < count; ++i) ratios[i] = vector_exp(log_ratios[i]);
}

// The smaller one; NaN when the ratio is, so that it does not pass for a clipped one.
inline float clipped(float ratio, float clip) { return ratio > clip ? clip : ratio; }

struct Coefficients {
  float gamma, lambda, rho_clip, c_clip, pg_rho_clip;
};

// One trajectory, last step first. `advantages` holds the ratios when this begins.
void row(std::int64_t steps, const float* values, const float* rewards, const std::uint8_t* terminated,
         const std::uint8_t* truncated, const float* final_values, const Coefficients& k, float* targets,
         float* advantages) {
  const bool unweighted = k.pg_rho_clip == static_cast<float>(VTraceOptions::kUnweighted);
  float correction = 0;  // vs_{t+1} - V_{t+1}
  float next_value = values[steps];
  for (std::int64_t t = steps - 1; t >= 0; --t) {
    const float value = values[t];
    const float ratio = advantages[t];
    const bool ends = (terminated[t] | truncated[t]) != 0;
    next_value = ends ? (terminated[t] != 0 ? 0.0f : final_values[t]) : next_value;
    correction = ends ? 0.0f : correction;
    const float difference = rewards[t] + k.gamma * next_value - value;
    // One rounding path for all: r + gamma * ((1 - lambda) V + lambda vs) - V of the next state is
    // the temporal difference plus gamma * lambda * correction.
    const float weight = unweighted ? 1.0f : clipped(ratio, k.pg_rho_clip);
    advantages[t] = weight * (difference + k.gamma * k.lambda * correction);
    correction =
        clipped(ratio, k.rho_clip) * difference + k.gamma * k.lambda * clipped(ratio, k.c_clip) * correction;
    targets[t] = value + correction;
    next_value = value;
  }
}

}  // namespace

void validate(const TrajectoryRows& rows) {
  if (rows.trajectories < 0 || rows.steps < 1) {
    throw std::invalid_argument(std::to_string(rows.trajectories) + " trajectories of " +
                                std::to_string(rows.steps) + " steps: expected >= 0 of >= 1");
  }
  require_size("values", rows.values.size(), rows.trajectories, rows.steps + 1);
  require_size("rewards", rows.rewards.size(), rows.trajectories, rows.steps);
  require_size("terminated", rows.terminated.size(), rows.trajectories, rows.steps);
  require_size("truncated", rows.truncated.size(), rows.trajectories, rows.steps);
  require_size("final_values", rows.final_values.size(), rows.trajectories, rows.steps);
}

void vtrace(const TrajectoryRows& rows, std::span<const float> log_ratios, const VTraceOptions& options,
            std::span<float> targets, std::span<float> advantages) {
  validate(rows);
  require_size("log_ratios", log_ratios.size(), rows.trajectories, rows.steps);
  require_size("targets", targets.size(), rows.trajectories, rows.steps);
  require_size("advantages", advantages.size(), rows.trajectories, rows.steps);
  exponentials(log_ratios.data(), log_ratios.size(), advantages.data());
  const Coefficients k{static_cast<float>(options.gamma), static_cast<float>(options.lambda),
                       static_cast<float>(options.rho_clip), static_cast<float>(options.c_clip),
                       static_cast<float>(options.pg_rho_clip)};
  for (std::int64_t i = 0; i < rows.trajectories; ++i) {
    const std::int64_t at = i * rows.steps;
    row(rows.steps, rows.values.data() + at + i, rows.rewards.data() + at, rows.terminated.data() + at,
        rows.truncated.data() + at, rows.final_values.data() + at, k, targets.data() + at,
        advantages.data() + at);
  }
}

}  // namespace gristmill
