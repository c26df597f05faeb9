#include "rollout/template_environment.h"

#include <algorithm>

namespace gristmill {

EnvironmentSpec TemplateEnvironment::spec() {
  EnvironmentSpec spec;
  spec.observation_shape = {2};
  spec.action_count = 3;
  return spec;
}

void TemplateEnvironment::reset(float* observation) {
  place_ = static_cast<int>(random_.below(kLength / 2));
  steps_ = 0;
  observe(observation);
}

StepResult TemplateEnvironment::step(std::int32_t action, float* observation) {
  place_ = std::clamp(place_ + action - 1, 0, kLength - 1);
  ++steps_;
  observe(observation);
  const bool arrived = place_ == kLength - 1;
  return {.reward = arrived ? 1.0F : -0.01F, .terminated = arrived, .truncated = steps_ >= kMaxSteps};
}

// Keep what the network sees near [-1, 1]. The share of time used makes the truncation foreseeable,
// but is no part of the task: many environments do without.
void TemplateEnvironment::observe(float* observation) const {
  observation[0] = static_cast<float>(place_) / (kLength - 1);
  observation[1] = static_cast<float>(steps_) / kMaxSteps;
}

}  // namespace gristmill
