#include "rollout/activation.h"

#include <cmath>
#include <stdexcept>

#include "rollout/vector_math.h"

namespace gristmill {
namespace {

// (1 - e) / (1 + e) with e = exp(-2|x|), which cannot overflow.
GRISTMILL_INLINE float vector_tanh(float x) {
  const float e = vector_exp(-2.0F * std::fabs(x));
  return std::copysign((1.0F - e) / (1.0F + e), x);
}

GRISTMILL_INLINE float vector_elu(float x) { return x > 0 ? x : vector_exp(x) - 1.0F; }

GRISTMILL_MULTIVERSION
void tanh_rows(float* rows, std::size_t n, const float* bias, std::size_t width) {
  for (std::size_t i = 0; i < n; ++i, rows += width) {
#pragma omp simd
    for (std::size_t k = 0; k < width; ++k) rows[k] = vector_tanh(rows[k] + bias[k]);
  }
}

GRISTMILL_MULTIVERSION
void relu_rows(float* rows, std::size_t n, const float* bias, std::size_t width) {
  for (std::size_t i = 0; i < n; ++i, rows += width) {
#pragma omp simd
    for (std::size_t k = 0; k < width; ++k) {
      const float x = rows[k] + bias[k];
      rows[k] = x < 0 ? 0.0F : x;  // NaN stays NaN
    }
  }
}

GRISTMILL_MULTIVERSION
void elu_rows(float* rows, std::size_t n, const float* bias, std::size_t width) {
  for (std::size_t i = 0; i < n; ++i, rows += width) {
#pragma omp simd
    for (std::size_t k = 0; k < width; ++k) rows[k] = vector_elu(rows[k] + bias[k]);
  }
}

GRISTMILL_MULTIVERSION
void tanh_derivative(const float* y, float* gradients, std::size_t count) {
#pragma omp simd
  for (std::size_t i = 0; i < count; ++i) gradients[i] *= 1.0F - y[i] * y[i];
}

GRISTMILL_MULTIVERSION
void relu_derivative(const float* y, float* gradients, std::size_t count) {
#pragma omp simd
  for (std::size_t i = 0; i < count; ++i) gradients[i] = y[i] > 0 ? gradients[i] : 0.0F;
}

GRISTMILL_MULTIVERSION
void elu_derivative(const float* y, float* gradients, std::size_t count) {
#pragma omp simd
  for (std::size_t i = 0; i < count; ++i) gradients[i] *= y[i] > 0 ? 1.0F : y[i] + 1.0F;
}

GRISTMILL_MULTIVERSION
void add_rows(const float* rows, std::size_t n, float* sums, std::size_t width) {
  for (std::size_t i = 0; i < n; ++i, rows += width) {
#pragma omp simd
    for (std::size_t k = 0; k < width; ++k) sums[k] += rows[k];
  }
}

}  // namespace

Activation activation_from_name(const std::string& name) {
  if (name == "tanh") return Activation::kTanh;
  if (name == "relu") return Activation::kRelu;
  if (name == "elu") return Activation::kElu;
  throw std::invalid_argument("policy.activation: '" + name + "' is none of tanh, relu, elu");
}

void add_bias_and_activate(Activation activation, std::span<float> rows, std::span<const float> bias) {
  const std::size_t width = bias.size();
  const std::size_t n = rows.size() / width;
  switch (activation) {
    case Activation::kTanh:
      return tanh_rows(rows.data(), n, bias.data(), width);
    case Activation::kRelu:
      return relu_rows(rows.data(), n, bias.data(), width);
    case Activation::kElu:
      return elu_rows(rows.data(), n, bias.data(), width);
  }
}

void multiply_by_derivative(Activation activation, std::span<const float> y, std::span<float> gradients) {
  switch (activation) {
    case Activation::kTanh:
      return tanh_derivative(y.data(), gradients.data(), y.size());
    case Activation::kRelu:
      return relu_derivative(y.data(), gradients.data(), y.size());
    case Activation::kElu:
      return elu_derivative(y.data(), gradients.data(), y.size());
  }
}

void sum_rows(std::span<const float> rows, std::span<float> sums) {
  for (float& sum : sums) sum = 0;
  add_rows(rows.data(), rows.size() / sums.size(), sums.data(), sums.size());
}

}  // namespace gristmill
