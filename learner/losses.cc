#include "learner/losses.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "learner/loss_rows.h"
#include "rollout/vector_math.h"

namespace gristmill {

void require_size(const char* name, std::size_t size, std::size_t expected, const char* why) {
  if (size == expected) return;
  throw std::invalid_argument(std::string(name) + " has " + std::to_string(size) + " elements, expected " +
                              std::to_string(expected) + " (" + why + ")");
}

void check_samples(const LossOptions& options, const LossSamples& samples, std::size_t value_gradients) {
  constexpr const char* kWhy = "one per sample, as values has";
  const std::size_t n = samples.values.size();
  require_size("old_log_probs", samples.old_log_probs.size(), n, kWhy);
  require_size("advantages", samples.advantages.size(), n, kWhy);
  require_size("targets", samples.targets.size(), n, kWhy);
  if (options.value_clip_range > 0 || !samples.old_values.empty()) {
    require_size("old_values", samples.old_values.size(), n, kWhy);
  }
  if (!samples.weights.empty()) require_size("weights", samples.weights.size(), n, kWhy);
  require_size("value_gradients", value_gradients, n, kWhy);
}

double total_weight(const LossSamples& samples) {
  if (samples.weights.empty()) return static_cast<double>(samples.values.size());
  double sum = 0;
  for (const float weight : samples.weights) sum += static_cast<double>(weight);
  return sum;
}

std::size_t load_block(const LossSamples& samples, std::size_t begin, LossBlock& block) {
  const std::size_t count = std::min(kLossRows, samples.values.size() - begin);
  for (std::size_t r = 0; r < kLossRows; ++r) {
    block.weight[r] = r >= count ? 0.0f : samples.weights.empty() ? 1.0f : samples.weights[begin + r];
  }
  const auto load = [&](std::span<const float> from, float* to) {
    if (from.empty()) {
      std::fill_n(to, kLossRows, 0.0f);
      return;
    }
    std::copy_n(from.data() + begin, count, to);
    std::fill(to + count, to + kLossRows, 0.0f);
    if (samples.weights.empty()) return;
    for (std::size_t r = 0; r < kLossRows; ++r) to[r] = block.weight[r] != 0.0f ? to[r] : 0.0f;
  };
  load(samples.values, block.value);
  load(samples.old_log_probs, block.old_log_prob);
  load(samples.advantages, block.advantage);
  load(samples.targets, block.target);
  load(samples.old_values, block.old_value);
  return count;
}

namespace {

struct RowFactors {
  float share, clip, value_clip, value_coefficient;
};

template <Objective objective, bool clip_values>
GRISTMILL_INLINE void rows(const RowFactors& f, LossBlock& b, LossSums& s) {
#pragma omp simd
  for (std::size_t r = 0; r < kLossRows; ++r) {
    const float weight = b.weight[r];
    const float advantage = b.advantage[r];
    const float log_ratio = b.log_prob[r] - b.old_log_prob[r];
    const float ratio = vector_exp(log_ratio);
    s.kl[r] += weight * ((ratio - 1.0f) - log_ratio);
    s.entropy[r] += weight * b.entropy[r];

    float surrogate = advantage * b.log_prob[r];
    float slope = advantage;  // d surrogate / d log_prob
    if constexpr (objective == Objective::kClipped) {
      const float low = 1.0f - f.clip, high = 1.0f + f.clip;
      const float bounded = ratio > high ? high : (ratio < low ? low : ratio);
      const float free = ratio * advantage, held = bounded * advantage;
      const bool holds = held < free;  // the clipped one is the smaller: no gradient
      surrogate = holds ? held : free;
      slope = holds ? 0.0f : free;
      s.clipped[r] += bounded != ratio ? weight : 0.0f;
    }
    s.policy[r] -= weight * surrogate;
    b.log_prob_gradient[r] = -f.share * weight * slope;

    const float error = b.value[r] - b.target[r];
    float squared = error * error;
    float value_slope = 2.0f * error;
    if constexpr (clip_values) {
      const float moved = b.value[r] - b.old_value[r];
      const bool inside = moved <= f.value_clip && moved >= -f.value_clip;
      const float bounded = moved > f.value_clip ? f.value_clip : -f.value_clip;
      const float held_error = inside ? error : b.old_value[r] + bounded - b.target[r];
      const bool holds = held_error * held_error > squared;
      squared = holds ? held_error * held_error : squared;
      value_slope = holds ? 0.0f : value_slope;
    }
    s.value[r] += weight * squared;
    b.value_gradient[r] = f.share * f.value_coefficient * weight * value_slope;
  }
}

GRISTMILL_MULTIVERSION
void clipped_rows(const RowFactors& f, LossBlock& b, LossSums& s) {
  rows<Objective::kClipped, false>(f, b, s);
}
GRISTMILL_MULTIVERSION
void clipped_rows_and_values(const RowFactors& f, LossBlock& b, LossSums& s) {
  rows<Objective::kClipped, true>(f, b, s);
}
GRISTMILL_MULTIVERSION
void gradient_rows(const RowFactors& f, LossBlock& b, LossSums& s) {
  rows<Objective::kPolicyGradient, false>(f, b, s);
}
GRISTMILL_MULTIVERSION
void gradient_rows_and_values(const RowFactors& f, LossBlock& b, LossSums& s) {
  rows<Objective::kPolicyGradient, true>(f, b, s);
}

// In double: the variance of values far from zero is a small difference of large sums.
GRISTMILL_MULTIVERSION
void moments(const LossBlock& b, LossSums& s) {
#pragma omp simd
  for (std::size_t r = 0; r < kLossRows; ++r) {
    const double weight = static_cast<double>(b.weight[r]);
    const double target = static_cast<double>(b.target[r]);
    const double error = target - static_cast<double>(b.value[r]);
    s.error[r] += weight * error;
    s.error_squared[r] += weight * error * error;
    s.target[r] += weight * target;
    s.target_squared[r] += weight * target * target;
  }
}

template <typename T>
double sum(const T (&lanes)[kLossRows]) {
  double total = 0;
  for (const T lane : lanes) total += static_cast<double>(lane);
  return total;
}

}  // namespace

void loss_rows(const LossOptions& options, float share, LossBlock& block, LossSums& sums) {
  const RowFactors factors{share, static_cast<float>(options.clip_range),
                           static_cast<float>(options.value_clip_range),
                           static_cast<float>(options.value_coefficient)};
  const bool clip_values = options.value_clip_range > 0;
  if (options.objective == Objective::kClipped) {
    clip_values ? clipped_rows_and_values(factors, block, sums) : clipped_rows(factors, block, sums);
  } else {
    clip_values ? gradient_rows_and_values(factors, block, sums) : gradient_rows(factors, block, sums);
  }
  moments(block, sums);
}

LossStats finish(const LossOptions& options, const LossSums& sums, double weight) {
  LossStats stats;
  stats.weight = weight;
  if (weight == 0) return stats;
  stats.policy_loss = sum(sums.policy) / weight;
  stats.value_loss = sum(sums.value) / weight;
  stats.entropy = sum(sums.entropy) / weight;
  stats.approx_kl = sum(sums.kl) / weight;
  stats.clip_fraction = sum(sums.clipped) / weight;
  stats.loss = stats.policy_loss + options.value_coefficient * stats.value_loss -
               options.entropy_coefficient * stats.entropy;
  const auto variance = [&](double total, double squares) {
    return squares / weight - (total / weight) * (total / weight);
  };
  const double spread = variance(sum(sums.target), sum(sums.target_squared));
  const double left = variance(sum(sums.error), sum(sums.error_squared));
  // Below this the targets are one number and the rest is rounding.
  const double floor = 1e-14 * sum(sums.target_squared) / weight;
  stats.explained_variance = spread > floor ? 1 - left / spread : std::numeric_limits<double>::quiet_NaN();
  return stats;
}

void normalize(std::span<float> advantages, std::span<const float> weights) {
  if (!weights.empty()) require_size("weights", weights.size(), advantages.size(), "one per advantage");
  const auto counts = [&](std::size_t i) { return weights.empty() || weights[i] != 0.0f; };
  double total = 0, count = 0;
  for (std::size_t i = 0; i < advantages.size(); ++i) {
    if (!counts(i)) continue;
    total += static_cast<double>(advantages[i]);
    count += 1;
  }
  if (count == 0) return;
  const double mean = total / count;
  double squares = 0;
  for (std::size_t i = 0; i < advantages.size(); ++i) {
    const double distance = counts(i) ? static_cast<double>(advantages[i]) - mean : 0;
    squares += distance * distance;
  }
  const double scale = count < 2 ? 1 : 1 / (std::sqrt(squares / (count - 1)) + 1e-8);
  for (float& advantage : advantages) {
    advantage = static_cast<float>((static_cast<double>(advantage) - mean) * scale);
  }
}

}  // namespace gristmill
