#pragma once

// A stack of linear layers with non-linearities, forward and backward in closed form: the graph of an
// MLP is known, so nothing is recorded, and gradients land in the flat buffer that Adam reads.
// The products are libtorch's. One thread.

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "rollout/activation.h"

namespace gristmill {

// y = x W^T + b. Views of flat buffers; the gradients are undefined where nothing is learned.
struct Linear {
  torch::Tensor weight, bias;                    // [out, in], [out]
  torch::Tensor weight_gradient, bias_gradient;  // the same

  // Overwrites the gradients, given the input x [B, in] and d loss / d y [B, out].
  void backward(const torch::Tensor& x, const torch::Tensor& y_gradient);
};

class Mlp {
 public:
  void bind(std::vector<Linear> layers, Activation activation);

  // The last layer's output [B, width]; x itself without layers. Valid until the next forward().
  const torch::Tensor& forward(const torch::Tensor& x);
  // Of the last forward(), given d loss / d output, which is overwritten.
  void backward(torch::Tensor& gradient);

 private:
  std::vector<Linear> layers_;
  Activation activation_ = Activation::kTanh;
  torch::Tensor input_;
  std::vector<torch::Tensor> outputs_;    // of each layer, kept between calls
  std::vector<torch::Tensor> gradients_;  // with respect to each layer's input
};

}  // namespace gristmill
