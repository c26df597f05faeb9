#pragma once

// The losses of PPO, APPO and IMPALA with their gradients in closed form: one pass over the
// network's outputs gives the statistics and d loss / d output, so that only the network itself goes
// through autograd. No torch. Any thread.

#include <cstdint>
#include <span>

namespace gristmill {

enum class Objective {
  kClipped,         // PPO, APPO: -min(ratio * A, clip(ratio, 1 - c, 1 + c) * A)
  kPolicyGradient,  // IMPALA: -A * log pi(a), the off-policy correction being within A
};

struct LossOptions {
  Objective objective = Objective::kClipped;
  double clip_range = 0.2;
  double value_clip_range = 0;  // 0: off
  double value_coefficient = 0.5;
  double entropy_coefficient = 0.0;
};

// What one minibatch of B samples was, all [B]. Spans may be empty where said.
struct LossSamples {
  std::span<const float> values;         // of the current critic
  std::span<const float> old_log_probs;  // of the actions, under the policy the ratio is taken against
  std::span<const float> advantages;     // used as they are, see normalize()
  std::span<const float> targets;        // for the critic
  std::span<const float> old_values;     // needed when value_clip_range > 0, else may be empty
  std::span<const float> weights;        // >= 0; 0 leaves a sample out whatever it holds; empty: all 1
};

// Means over the samples, weighted. All 0 when the weights are.
struct LossStats {
  double loss = 0;  // policy_loss + value_coefficient * value_loss - entropy_coefficient * entropy
  double policy_loss = 0;
  double value_loss = 0;          // mean (V - target)^2, without a half; the greater of that and the clipped
                                  // one's when clipping
  double entropy = 0;             // of the action distribution, in nats
  double approx_kl = 0;           // mean (ratio - 1) - log ratio  (Schulman's k3), never negative
  double clip_fraction = 0;       // samples with |ratio - 1| > clip_range; 0 for kPolicyGradient
  double explained_variance = 0;  // 1 - Var(target - V) / Var(target); NaN when targets do not vary
  double weight = 0;              // sum of the weights: for averaging over minibatches
};

// Categorical actions. logits [B, A] need not be normalised; actions [B] in [0, A).
// Receives d loss / d logits [B, A] and d loss / d values [B], 0 in samples of weight 0.
// Non-finite inputs (of weight > 0) give a non-finite loss. Throws std::invalid_argument naming an
// array of the wrong size or an action out of range (its index and value).
LossStats categorical_loss(const LossOptions& options, std::span<const float> logits,
                           std::span<const std::int32_t> actions, const LossSamples& samples,
                           std::span<float> logit_gradients, std::span<float> value_gradients);

// Independent normal actions. means [B, D], log_std [D] (the same in every state), actions [B, D].
// Receives d loss / d means [B, D], d log_std [D] and d values [B]. Otherwise as categorical_loss.
LossStats gaussian_loss(const LossOptions& options, std::span<const float> means,
                        std::span<const float> log_std, std::span<const float> actions,
                        const LossSamples& samples, std::span<float> mean_gradients,
                        std::span<float> log_std_gradients, std::span<float> value_gradients);

// log pi(a) [B], as the losses compute it: what V-trace's ratios need.
void categorical_log_probs(std::span<const float> logits, std::span<const std::int32_t> actions,
                           std::span<float> log_probs);
void gaussian_log_probs(std::span<const float> means, std::span<const float> log_std,
                        std::span<const float> actions, std::span<float> log_probs);

// Subtracts the mean and divides by the (unbiased) standard deviation + 1e-8, in place. Samples of
// weight 0 count for nothing; weights may be empty. Fewer than two samples: the mean only.
void normalize(std::span<float> advantages, std::span<const float> weights = {});

}  // namespace gristmill
