#include <algorithm>
#include <cmath>
#include <vector>

#include "learner/loss_rows.h"
#include "learner/losses.h"
#include "rollout/vector_math.h"

namespace gristmill {
namespace {

constexpr float kHalfLogTwoPi = 0.918938533204672742f;

// Per dimension, the same for all samples.
struct Deviations {
  std::vector<float> inverse;  // 1 / standard deviation
  float log_prob_offset = 0;   // -sum (log_std + log(2 pi) / 2)
  float entropy = 0;           // sum (log_std + (1 + log(2 pi)) / 2)

  explicit Deviations(std::span<const float> log_std) {
    for (const float value : log_std) {
      inverse.push_back(std::exp(-value));
      log_prob_offset -= value + kHalfLogTwoPi;
      entropy += value + kHalfLogTwoPi + 0.5f;
    }
  }
};

// distances [D, kLossRows]: (action - mean) / standard deviation, rows turned into columns.
void load_distances(const float* means, const float* actions, std::size_t count, const float* weight,
                    const Deviations& deviations, float* distances) {
  const std::size_t dims = deviations.inverse.size();
  for (std::size_t r = 0; r < kLossRows; ++r) {
    const bool present = r < count && weight[r] != 0.0f;
    for (std::size_t d = 0; d < dims; ++d) {
      distances[d * kLossRows + r] =
          present ? (actions[r * dims + d] - means[r * dims + d]) * deviations.inverse[d] : 0.0f;
    }
  }
}

GRISTMILL_MULTIVERSION
void log_probabilities(const float* distances, std::size_t dims, float offset, float* log_prob) {
#pragma omp simd
  for (std::size_t r = 0; r < kLossRows; ++r) log_prob[r] = offset;
  for (std::size_t d = 0; d < dims; ++d) {
    const float* z = distances + d * kLossRows;
#pragma omp simd
    for (std::size_t r = 0; r < kLossRows; ++r) log_prob[r] -= 0.5f * (z[r] * z[r]);
  }
}

std::size_t checked_dims(std::span<const float> means, std::span<const float> log_std,
                         std::span<const float> actions, std::size_t samples) {
  require_size("means", means.size(), samples * log_std.size(), "samples times the size of log_std");
  require_size("actions", actions.size(), means.size(), "as means has");
  return log_std.size();
}

}  // namespace

LossStats gaussian_loss(const LossOptions& options, std::span<const float> means,
                        std::span<const float> log_std, std::span<const float> actions,
                        const LossSamples& samples, std::span<float> mean_gradients,
                        std::span<float> log_std_gradients, std::span<float> value_gradients) {
  check_samples(options, samples, value_gradients.size());
  const std::size_t dims = checked_dims(means, log_std, actions, samples.values.size());
  require_size("mean_gradients", mean_gradients.size(), means.size(), "as means has");
  require_size("log_std_gradients", log_std_gradients.size(), dims, "as log_std has");

  const double weight = total_weight(samples);
  const float share = weight > 0 ? static_cast<float>(1 / weight) : 0.0f;
  const Deviations deviations(log_std);
  std::vector<float> distances(dims * kLossRows);
  std::vector<double> spread(dims, 0.0);  // of d loss / d log_std, in double over all samples
  LossBlock block;
  LossSums sums;
  std::fill_n(block.entropy, kLossRows, deviations.entropy);
  for (std::size_t begin = 0; begin < samples.values.size(); begin += kLossRows) {
    const std::size_t count = load_block(samples, begin, block);
    load_distances(means.data() + begin * dims, actions.data() + begin * dims, count, block.weight,
                   deviations, distances.data());
    log_probabilities(distances.data(), dims, deviations.log_prob_offset, block.log_prob);
    loss_rows(options, share, block, sums);
    // d log_prob / d mean = z / std;  d log_prob / d log_std = z^2 - 1.
    float* out = mean_gradients.data() + begin * dims;
    for (std::size_t d = 0; d < dims; ++d) {
      const float* z = distances.data() + d * kLossRows;
      double total = 0;
      for (std::size_t r = 0; r < count; ++r) {
        out[r * dims + d] = block.log_prob_gradient[r] * z[r] * deviations.inverse[d];
        total += static_cast<double>(block.log_prob_gradient[r] * (z[r] * z[r] - 1.0f));
      }
      spread[d] += total;
    }
    std::copy_n(block.value_gradient, count, value_gradients.data() + begin);
  }
  const double bonus = weight > 0 ? options.entropy_coefficient : 0;  // d entropy / d log_std is 1
  for (std::size_t d = 0; d < dims; ++d) log_std_gradients[d] = static_cast<float>(spread[d] - bonus);
  return finish(options, sums, weight);
}

void gaussian_log_probs(std::span<const float> means, std::span<const float> log_std,
                        std::span<const float> actions, std::span<float> log_probs) {
  const std::size_t dims = checked_dims(means, log_std, actions, log_probs.size());
  const Deviations deviations(log_std);
  std::vector<float> distances(dims * kLossRows);
  alignas(64) float present[kLossRows], block[kLossRows];
  std::fill_n(present, kLossRows, 1.0f);
  for (std::size_t begin = 0; begin < log_probs.size(); begin += kLossRows) {
    const std::size_t count = std::min(kLossRows, log_probs.size() - begin);
    load_distances(means.data() + begin * dims, actions.data() + begin * dims, count, present, deviations,
                   distances.data());
    log_probabilities(distances.data(), dims, deviations.log_prob_offset, block);
    std::copy_n(block, count, log_probs.data() + begin);
  }
}

}  // namespace gristmill
