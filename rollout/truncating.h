#pragma once

// A probe whose value is known in closed form: one state, one reward for ever, cut by a time limit.
// A learner that bootstraps truncated episodes rightly finds kReward / (1 - gamma) everywhere; one
// that takes the cut for an end finds less.

#include <cstdint>

#include "rollout/environment.h"

namespace gristmill {

// Observation: float32 [1], always 1. Action: Discrete(2), without effect. Never terminated.
class Truncating {
 public:
  static constexpr float kReward = 1;
  static constexpr int kMaxSteps = 5;

  static EnvironmentSpec spec() {
    EnvironmentSpec spec;
    spec.observation_shape = {1};
    spec.action_count = 2;
    return spec;
  }
  explicit Truncating(std::uint64_t /*seed*/) {}

  void reset(float* observation) {
    steps_ = 0;
    *observation = 1;
  }
  StepResult step(std::int32_t /*action*/, float* observation) {
    *observation = 1;
    return {.reward = kReward, .truncated = ++steps_ >= kMaxSteps};
  }

 private:
  int steps_ = 0;
};

}  // namespace gristmill
