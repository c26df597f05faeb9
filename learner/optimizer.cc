#include "learner/optimizer.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "rollout/vector_math.h"

namespace gristmill {
namespace {

void require_size(const char* name, std::size_t size, std::size_t expected) {
  if (size == expected) return;
  throw std::invalid_argument(std::string(name) + " has " + std::to_string(size) + " elements, expected " +
                              std::to_string(expected) + " as there are parameters");
}

GRISTMILL_MULTIVERSION
double sum_of_squares(const float* values, std::size_t count) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::size_t i = 0; i < count; ++i) {
    const double value = static_cast<double>(values[i]);
    sum += value * value;
  }
  return sum;
}

struct Factors {
  float scale;  // of the gradient, from clipping
  float beta1, beta2;
  float rate;  // learning rate / (1 - beta1^step)
  float root;  // 1 / sqrt(1 - beta2^step)
  float epsilon;
};

// Its own loop rather than torch's fused Adam: that one costs more to call than a small network's
// whole step, and spreads a large one's over threads the workers need.
GRISTMILL_MULTIVERSION
void update(std::size_t count, const Factors& factors, const float* __restrict gradient,
            float* __restrict parameters, float* __restrict first, float* __restrict second) {
  const Factors f = factors;
#pragma omp simd
  for (std::size_t i = 0; i < count; ++i) {
    const float g = gradient[i] * f.scale;
    const float m = f.beta1 * first[i] + (1.0f - f.beta1) * g;
    const float v = f.beta2 * second[i] + (1.0f - f.beta2) * (g * g);
    first[i] = m;
    second[i] = v;
    parameters[i] -= f.rate * m / (std::sqrt(v) * f.root + f.epsilon);
  }
}

}  // namespace

Adam::Adam(std::int64_t parameter_count, const AdamOptions& options)
    : options_(options),
      first_moment_(static_cast<std::size_t>(parameter_count), 0.0f),
      second_moment_(static_cast<std::size_t>(parameter_count), 0.0f) {}

Adam::Step Adam::step(std::span<float> parameters, std::span<const float> gradient, double learning_rate) {
  require_size("parameters", parameters.size(), first_moment_.size());
  require_size("gradient", gradient.size(), first_moment_.size());
  Step result{.grad_norm = global_norm(gradient), .applied = false};
  if (!std::isfinite(result.grad_norm)) return result;

  ++steps_;
  const bool clip = options_.max_grad_norm > 0 && result.grad_norm > options_.max_grad_norm;
  const auto step = static_cast<double>(steps_);
  const Factors factors{
      .scale = clip ? static_cast<float>(options_.max_grad_norm / result.grad_norm) : 1.0f,
      .beta1 = static_cast<float>(options_.beta1),
      .beta2 = static_cast<float>(options_.beta2),
      .rate = static_cast<float>(learning_rate / (1 - std::pow(options_.beta1, step))),
      .root = static_cast<float>(1 / std::sqrt(1 - std::pow(options_.beta2, step))),
      .epsilon = static_cast<float>(options_.epsilon),
  };
  update(parameters.size(), factors, gradient.data(), parameters.data(), first_moment_.data(),
         second_moment_.data());
  result.applied = true;
  return result;
}

void Adam::restore(std::span<const float> first_moment, std::span<const float> second_moment,
                   std::int64_t steps) {
  require_size("first_moment", first_moment.size(), first_moment_.size());
  require_size("second_moment", second_moment.size(), second_moment_.size());
  if (steps < 0) throw std::invalid_argument("Adam's steps are " + std::to_string(steps) + ", expected >= 0");
  std::copy(first_moment.begin(), first_moment.end(), first_moment_.begin());
  std::copy(second_moment.begin(), second_moment.end(), second_moment_.begin());
  steps_ = steps;
}

double global_norm(std::span<const float> gradient) {
  return std::sqrt(sum_of_squares(gradient.data(), gradient.size()));
}

Schedule schedule_from_name(std::string_view name) {
  if (name == "constant") return Schedule::kConstant;
  if (name == "linear") return Schedule::kLinear;
  throw std::invalid_argument("no schedule is called \"" + std::string(name) +
                              "\", expected constant or linear");
}

double scheduled(Schedule schedule, double base, double progress) {
  if (schedule == Schedule::kConstant) return base;
  return base * (1 - std::clamp(progress, 0.0, 1.0));
}

}  // namespace gristmill
