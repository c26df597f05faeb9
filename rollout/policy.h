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
#include "rollout/mlp.h"

namespace gristmill {

// What the network gives for B observations. Views of the policy's buffers: valid until its next
// forward().
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

  // Acts with the parameters in `flat` (float32 [parameter_count], contiguous), in place: the layers
  // are views of it. With `gradient`, of the same size, backward() writes there.
  void bind(const torch::Tensor& flat, const torch::Tensor& gradient = {});

  // observations: [B, observation…] float32 or uint8 (scaled by 1/255); rows may be strided.
  PolicyOutput forward(const torch::Tensor& observations);
  // Of the last forward(): d loss / d [action parameters, value], [B, outputs + 1], in; every
  // parameter's gradient out, overwritten (log_std's is left as it is). REQUIRES: bound with a gradient.
  void backward(const torch::Tensor& output_gradient);

  // Continuous actions: the learned log std, [action_dims].
  const torch::Tensor& log_std() const { return log_std_; }

 private:
  EnvironmentSpec environment_;
  Config::Policy config_;
  FieldSpecs layout_;
  std::int64_t parameter_count_ = 0;
  std::int64_t outputs_ = 0;  // of the actor's head
  // With a shared trunk actor_ holds both heads (the critic's row last) and the critic's parts are
  // empty: one matrix product instead of two.
  Mlp trunk_, critic_trunk_;
  Linear actor_, critic_;
  torch::Tensor log_std_;
  torch::Tensor hidden_, critic_hidden_;        // the heads' inputs at the last forward()
  torch::Tensor actor_output_, critic_output_;  // what it returned
  torch::Tensor hidden_gradient_;               // kept between calls
};

}  // namespace gristmill
