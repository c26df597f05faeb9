#include "rollout/mlp.h"

#include <utility>

namespace gristmill {
namespace {

std::span<float> span_of(torch::Tensor& tensor) {
  return {tensor.mutable_data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
}
std::span<const float> span_of(const torch::Tensor& tensor) {
  return {tensor.const_data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
}

torch::Tensor& sized(torch::Tensor& buffer, std::int64_t rows, std::int64_t width,
                     const torch::Tensor& like) {
  if (!buffer.defined()) buffer = torch::empty({0}, like.options());
  return const_cast<torch::Tensor&>(buffer.resize_({rows, width}));  // resize_ gives itself back as const
}

// Our kernels are for the CPU; elsewhere libtorch's do.
void add_bias_and_activate(Activation activation, torch::Tensor& rows, const torch::Tensor& bias) {
  if (rows.is_cpu()) return add_bias_and_activate(activation, span_of(rows), span_of(bias));
  rows.add_(bias);
  switch (activation) {
    case Activation::kTanh:
      rows.tanh_();
      return;
    case Activation::kRelu:
      rows.relu_();
      return;
    case Activation::kElu:
      at::elu_(rows);
      return;
  }
}

void multiply_by_derivative(Activation activation, const torch::Tensor& y, torch::Tensor& gradient) {
  if (y.is_cpu()) return multiply_by_derivative(activation, span_of(y), span_of(gradient));
  switch (activation) {
    case Activation::kTanh:
      gradient.mul_(1 - y * y);
      return;
    case Activation::kRelu:
      gradient.mul_(y > 0);
      return;
    case Activation::kElu:
      gradient.mul_(at::where(y > 0, at::ones_like(y), y + 1));
      return;
  }
}

}  // namespace

void Linear::backward(const torch::Tensor& x, const torch::Tensor& y_gradient) {
  at::mm_out(weight_gradient, y_gradient.t(), x);
  if (y_gradient.is_cpu() && y_gradient.is_contiguous()) {
    sum_rows(span_of(y_gradient), span_of(bias_gradient));
  } else {
    at::sum_out(bias_gradient, y_gradient, 0);
  }
}

void Mlp::bind(std::vector<Linear> layers, Activation activation) {
  layers_ = std::move(layers);
  activation_ = activation;
  outputs_.resize(layers_.size());
  gradients_.resize(layers_.size());
}

const torch::Tensor& Mlp::forward(const torch::Tensor& x) {
  input_ = x;
  const torch::Tensor* in = &input_;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    torch::Tensor& out = sized(outputs_[i], x.size(0), layers_[i].weight.size(0), layers_[i].weight);
    at::mm_out(out, *in, layers_[i].weight.t());
    add_bias_and_activate(activation_, out, layers_[i].bias);
    in = &out;
  }
  return *in;
}

void Mlp::backward(torch::Tensor& gradient) {
  torch::Tensor* out = &gradient;
  for (std::size_t i = layers_.size(); i-- > 0;) {
    multiply_by_derivative(activation_, outputs_[i], *out);
    layers_[i].backward(i == 0 ? input_ : outputs_[i - 1], *out);
    if (i == 0) return;  // nobody asks for the observations' gradient
    torch::Tensor& in = sized(gradients_[i], out->size(0), layers_[i].weight.size(1), layers_[i].weight);
    at::mm_out(in, *out, layers_[i].weight);
    out = &in;
  }
}

}  // namespace gristmill
