#pragma once

// The part of the losses that does not depend on the kind of action. Internal to learner/.
//
// Samples are worked on kLossRows at a time, each quantity an array over the rows of the block, so
// that every loop vectorises whatever the number of actions. Rows beyond the last sample, and
// samples of weight 0, are zeros with weight 0.

#include <cstddef>
#include <span>

#include "learner/losses.h"

namespace gristmill {

inline constexpr std::size_t kLossRows = 64;

struct LossBlock {
  alignas(64) float weight[kLossRows];
  alignas(64) float log_prob[kLossRows];  // of the action, under the current policy
  alignas(64) float entropy[kLossRows];
  alignas(64) float value[kLossRows];
  alignas(64) float old_log_prob[kLossRows];
  alignas(64) float advantage[kLossRows];
  alignas(64) float target[kLossRows];
  alignas(64) float old_value[kLossRows];
  // Results: d loss / d log_prob, d loss / d value, both with the sample's share of the mean.
  alignas(64) float log_prob_gradient[kLossRows];
  alignas(64) float value_gradient[kLossRows];
};

// Sums over the samples, one lane per row of a block: no loop waits for the sum before it.
struct LossSums {
  alignas(64) float policy[kLossRows] = {};
  alignas(64) float value[kLossRows] = {};
  alignas(64) float entropy[kLossRows] = {};
  alignas(64) float kl[kLossRows] = {};
  alignas(64) float clipped[kLossRows] = {};
  alignas(64) double error[kLossRows] = {}, error_squared[kLossRows] = {};
  alignas(64) double target[kLossRows] = {}, target_squared[kLossRows] = {};
};

// Sizes against B = samples.values.size(); throws std::invalid_argument naming the array.
void check_samples(const LossOptions& options, const LossSamples& samples, std::size_t value_gradients);
void require_size(const char* name, std::size_t size, std::size_t expected, const char* why);

double total_weight(const LossSamples& samples);

// Fills all of the block but log_prob and entropy with the samples from `begin` on. Returns how many.
std::size_t load_block(const LossSamples& samples, std::size_t begin, LossBlock& block);

// From log_prob and the rest: the gradients, and what the sums grow by. share: 1 / total weight.
void loss_rows(const LossOptions& options, float share, LossBlock& block, LossSums& sums);

LossStats finish(const LossOptions& options, const LossSums& sums, double weight);

}  // namespace gristmill
