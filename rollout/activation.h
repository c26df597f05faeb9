#pragma once

// The hidden layers' non-linearities, fused with the bias and written for the vectoriser: as much
// time goes here as into the matrix products. No torch. Any thread.

#include <cstdint>
#include <span>
#include <string>

namespace gristmill {

enum class Activation { kTanh, kRelu, kElu };

// "tanh", "relu" or "elu". Throws std::invalid_argument naming them.
Activation activation_from_name(const std::string& name);

// rows [n, width] = activation(rows + bias), in place; bias [width]. tanh is within 3e-7.
void add_bias_and_activate(Activation activation, std::span<float> rows, std::span<const float> bias);

// gradients *= activation'(x), in place, given y = activation(x) of the same size.
void multiply_by_derivative(Activation activation, std::span<const float> y, std::span<float> gradients);

// sums [width] = column sums of rows [n, width].
void sum_rows(std::span<const float> rows, std::span<float> sums);

}  // namespace gristmill
