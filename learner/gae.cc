#include "learner/gae.h"

#include <stdexcept>
#include <string>
#include <utility>

namespace gristmill {
namespace {

void row(std::int64_t steps, const float* values, const float* rewards, const std::uint8_t* terminated,
         const std::uint8_t* truncated, const float* final_values, float gamma, float decay, float* returns,
         float* advantages) {
  float advantage = 0;
  float next_value = values[steps];
  for (std::int64_t t = steps - 1; t >= 0; --t) {
    const float value = values[t];
    const bool ends = (terminated[t] | truncated[t]) != 0;
    next_value = ends ? (terminated[t] != 0 ? 0.0f : final_values[t]) : next_value;
    advantage = ends ? 0.0f : advantage;
    advantage = rewards[t] + gamma * next_value - value + decay * advantage;
    advantages[t] = advantage;
    returns[t] = value + advantage;
    next_value = value;
  }
}

}  // namespace

void gae(const TrajectoryRows& rows, const GaeOptions& options, std::span<float> returns,
         std::span<float> advantages) {
  validate(rows);
  for (const auto& [name, size] : {std::pair{"returns", returns.size()}, {"advantages", advantages.size()}}) {
    if (size != rows.rewards.size()) {
      throw std::invalid_argument(std::string(name) + " has " + std::to_string(size) +
                                  " elements, expected " + std::to_string(rows.rewards.size()) +
                                  " as rewards");
    }
  }
  const auto gamma = static_cast<float>(options.gamma);
  const auto decay = static_cast<float>(options.gamma * options.lambda);
  for (std::int64_t i = 0; i < rows.trajectories; ++i) {
    const std::int64_t at = i * rows.steps;
    row(rows.steps, rows.values.data() + at + i, rows.rewards.data() + at, rows.terminated.data() + at,
        rows.truncated.data() + at, rows.final_values.data() + at, gamma, decay, returns.data() + at,
        advantages.data() + at);
  }
}

}  // namespace gristmill
