#pragma once

// The actor-critic policy: an MLP in libtorch over one flat float32 parameter buffer. The same code
// acts in native workers, acts in Python workers, and learns in the learner.

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/field_spec.h"
#include "rollout/config.h"
#include "rollout/environment.h"

namespace gristmill {

// What the network gives for B observations.
struct PolicyOutput {
  torch::Tensor action_parameters;  // [B, action_count] logits, or [B, action_dims] means
  torch::Tensor values;             // [B]
};

class Policy {
 public:
  // Shapes only; no parameters yet.
  Policy(const Config::Policy& config, const EnvironmentSpec& environment);

  const EnvironmentSpec& environment() const { return environment_; }
  // Name and shape of each parameter, in the order of the flat buffer: "trunk.0.weight" [64, 4], …
  const FieldSpecs& layout() const { return layout_; }
  std::int64_t parameter_count() const { return parameter_count_; }

  // Orthogonal initialisation (Saxe et al. 2014): gain sqrt(2) in hidden layers, 0.01 for the
  // actor head, 1 for the critic head; biases zero. The same seed gives the same parameters. float32
  // [parameter_count].
  torch::Tensor initial_parameters(std::uint64_t seed) const;

  // Acts with / learns the parameters in `flat` (float32 [parameter_count], contiguous), in place:
  // the layers are views of it. Without gradients.
  void bind(torch::Tensor flat);
  // As bind(), and the views are leaves whose gradients accumulate into `flat_grad`.
  void bind_with_gradients(torch::Tensor flat, torch::Tensor flat_grad);

  // observations: [B, observation…] float32 or uint8 (scaled by 1/255); rows may be strided.
  PolicyOutput forward(const torch::Tensor& observations) const;

  // Continuous actions: the learned log std, [action_dims].
  const torch::Tensor& log_std() const { return log_std_; }

 private:
  struct Linear {
    torch::Tensor weight, bias;
  };
  void bind_views(torch::Tensor flat, torch::Tensor flat_grad);

  EnvironmentSpec environment_;
  Config::Policy config_;
  FieldSpecs layout_;
  std::int64_t parameter_count_ = 0;
  // Views of the bound buffer. With a shared trunk actor_ holds both heads (the critic's row last)
  // and critic_trunk_ and critic_ are empty: one matrix product instead of two.
  std::vector<Linear> trunk_, critic_trunk_;
  Linear actor_, critic_;
  torch::Tensor log_std_;
};

}  // namespace gristmill
