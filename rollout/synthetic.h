#pragma once

// An environment that costs what it is told to cost: for measuring the pipeline itself, and for making up
// a run whose bottleneck is known.

#include <cstdint>
#include <string>
#include <vector>

#include "rollout/environment.h"
#include "rollout/random.h"

namespace gristmill {

// What `env.kwargs` says, with the defaults here.
struct SyntheticOptions {
  std::vector<std::int64_t> observation_shape = {4};  // "observation"
  DType observation_dtype = DType::kFloat32;          // "dtype": "float32" or "uint8"
  std::int64_t actions = 2;                           // "actions": Discrete(actions)
  double step_us = 0;        // "step_us": µs of each environment's step beyond writing its observation
  bool random_cost = false;  // "random": exponentially distributed around step_us, not fixed
  bool sleeps = false;       // "sleep": a vector step's cost is slept, not computed: it needs no core
  std::int64_t episode_length = 200;  // "episode_length": steps, then terminated

  // Throws std::invalid_argument naming the key, the value and what was expected.
  static SyntheticOptions from_json(const std::string& json);
};

// Observation: the given shape, every element written at each step: one byte value, or one number in [0, 1),
// that changes from step to step. Action: Discrete(actions), without effect. Reward: 1.
class SyntheticEnvironments final : public VectorEnvironment {
 public:
  SyntheticEnvironments(const SyntheticOptions& options, std::int64_t count, std::uint64_t seed,
                        std::int64_t first_index);

  const EnvironmentSpec& spec() const override { return spec_; }
  std::int64_t size() const override { return static_cast<std::int64_t>(steps_.size()); }
  void reset(Rows observations) override;
  void step(Rows actions, const StepRows& out) override;

 private:
  void observe(std::byte* row);
  void spend(double us) const;

  const SyntheticOptions options_;
  EnvironmentSpec spec_;
  std::vector<std::int64_t> steps_;  // of each copy's episode
  Random random_;
  std::uint8_t shade_ = 0;
};

}  // namespace gristmill
