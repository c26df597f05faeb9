#pragma once

// learner/losses.h on tensors: what the learner calls between forward() and backward().

#include <torch/torch.h>

#include "learner/losses.h"

namespace gristmill {

struct PolicyGradient {
  LossStats stats;
  torch::Tensor action_parameters;  // d loss / d logits [B, A], or d means [B, D]
  torch::Tensor values;             // d loss / d values [B]
  torch::Tensor log_std;            // d loss / d log_std [D]; undefined for categorical actions
};

// All [B] float32; old_values and weights may be undefined, as in LossSamples.
struct PolicySamples {
  torch::Tensor actions;  // [B] int32, or [B, D] float32
  torch::Tensor old_log_probs, advantages, targets, old_values, weights;
};

// action_parameters [B, A or D] and values [B] are the network's outputs; log_std [D] is undefined
// for categorical actions. Then
//   torch::autograd::backward({out.action_parameters, out.values}, {g.action_parameters, g.values})
// and g.log_std is to be added to the gradient of log_std. Nothing is recorded for autograd. Inputs
// on another device, of another dtype or not contiguous are copied first; gradients come back on the
// device of action_parameters. Throws std::invalid_argument as the losses do.
PolicyGradient policy_loss(const LossOptions& options, const torch::Tensor& action_parameters,
                           const torch::Tensor& values, const torch::Tensor& log_std,
                           const PolicySamples& samples);

}  // namespace gristmill
