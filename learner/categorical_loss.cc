#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "learner/loss_rows.h"
#include "learner/losses.h"
#include "rollout/vector_math.h"

namespace gristmill {
namespace {

// Of one block: what a softmax leaves behind for the gradient.
struct Softmax {
  std::size_t actions;
  float* centred;        // [A, kLossRows]: logits less their maximum, then d loss / d logits
  float* probabilities;  // [A, kLossRows]
  alignas(64) float log_sum[kLossRows];
  alignas(64) float entropy[kLossRows];
};

// Rows of [B, A] become columns, so that the loops below run over rows.
void load_logits(const float* logits, std::size_t count, const float* weight, Softmax& s) {
  for (std::size_t r = 0; r < kLossRows; ++r) {
    const bool present = r < count && weight[r] != 0.0f;
    for (std::size_t a = 0; a < s.actions; ++a) {
      s.centred[a * kLossRows + r] = present ? logits[r * s.actions + a] : 0.0f;
    }
  }
}

GRISTMILL_MULTIVERSION
void softmax(Softmax& s) {
  alignas(64) float most[kLossRows], sum[kLossRows], mean[kLossRows];
#pragma omp simd
  for (std::size_t r = 0; r < kLossRows; ++r) {
    most[r] = s.centred[r];
    sum[r] = 0;
    mean[r] = 0;
  }
  for (std::size_t a = 1; a < s.actions; ++a) {
    const float* z = s.centred + a * kLossRows;
#pragma omp simd
    for (std::size_t r = 0; r < kLossRows; ++r) most[r] = z[r] > most[r] ? z[r] : most[r];
  }
  for (std::size_t a = 0; a < s.actions; ++a) {
    float* z = s.centred + a * kLossRows;
    float* p = s.probabilities + a * kLossRows;
#pragma omp simd
    for (std::size_t r = 0; r < kLossRows; ++r) {
      const float centred = z[r] - most[r];
      const float power = vector_exp(centred);
      z[r] = centred;
      p[r] = power;
      sum[r] += power;
      mean[r] += power * centred;
    }
  }
#pragma omp simd
  for (std::size_t r = 0; r < kLossRows; ++r) {
    s.log_sum[r] = vector_log(sum[r]);
    sum[r] = 1.0f / sum[r];
    s.entropy[r] = s.log_sum[r] - mean[r] * sum[r];
  }
  for (std::size_t a = 0; a < s.actions; ++a) {
    float* p = s.probabilities + a * kLossRows;
#pragma omp simd
    for (std::size_t r = 0; r < kLossRows; ++r) p[r] *= sum[r];
  }
}

// d log_prob / d z_a = [a is the action] - p_a, of which this is the second part (the first is one
// element a row), and d entropy / d z_a = -p_a (log p_a + entropy). In place of the logits.
GRISTMILL_MULTIVERSION
void gradients(const LossBlock& block, float entropy_share, Softmax& s) {
  for (std::size_t a = 0; a < s.actions; ++a) {
    float* z = s.centred + a * kLossRows;
    const float* p = s.probabilities + a * kLossRows;
#pragma omp simd
    for (std::size_t r = 0; r < kLossRows; ++r) {
      const float log_probability = z[r] - s.log_sum[r];
      const float bonus = entropy_share * block.weight[r] * (log_probability + s.entropy[r]);
      z[r] = p[r] * (bonus - block.log_prob_gradient[r]);
    }
  }
}

std::size_t action_count(std::span<const float> logits, std::span<const std::int32_t> actions) {
  if (actions.empty()) {
    require_size("logits", logits.size(), 0, "there are no actions");
    return 1;
  }
  const std::size_t count = logits.size() / actions.size();
  if (count == 0 || logits.size() % actions.size() != 0) {
    throw std::invalid_argument("logits has " + std::to_string(logits.size()) +
                                " elements, expected a multiple of the " + std::to_string(actions.size()) +
                                " actions");
  }
  return count;
}

std::size_t checked_action(std::span<const std::int32_t> actions, std::size_t i, std::size_t count) {
  const std::int32_t action = actions[i];
  if (action < 0 || static_cast<std::size_t>(action) >= count) {
    throw std::invalid_argument("actions[" + std::to_string(i) + "] is " + std::to_string(action) +
                                ", expected 0 to " + std::to_string(count - 1));
  }
  return static_cast<std::size_t>(action);
}

struct Scratch {
  std::vector<float> memory;
  Softmax softmax;
  explicit Scratch(std::size_t actions) : memory(2 * actions * kLossRows) {
    softmax.actions = actions;
    softmax.centred = memory.data();
    softmax.probabilities = memory.data() + actions * kLossRows;
  }
};

}  // namespace

LossStats categorical_loss(const LossOptions& options, std::span<const float> logits,
                           std::span<const std::int32_t> actions, const LossSamples& samples,
                           std::span<float> logit_gradients, std::span<float> value_gradients) {
  check_samples(options, samples, value_gradients.size());
  require_size("actions", actions.size(), samples.values.size(), "one per sample, as values has");
  const std::size_t n = action_count(logits, actions);
  require_size("logit_gradients", logit_gradients.size(), logits.size(), "as logits has");

  const double weight = total_weight(samples);
  const float share = weight > 0 ? static_cast<float>(1 / weight) : 0.0f;
  const float entropy_share = static_cast<float>(options.entropy_coefficient) * share;
  Scratch scratch(n);
  Softmax& s = scratch.softmax;
  LossBlock block;
  LossSums sums;
  for (std::size_t begin = 0; begin < actions.size(); begin += kLossRows) {
    const std::size_t count = load_block(samples, begin, block);
    load_logits(logits.data() + begin * n, count, block.weight, s);
    softmax(s);
    std::size_t at[kLossRows] = {};  // where in `centred` the action of a row is
    for (std::size_t r = 0; r < count; ++r) {
      at[r] = (block.weight[r] != 0.0f ? checked_action(actions, begin + r, n) : 0) * kLossRows + r;
    }
    for (std::size_t r = count; r < kLossRows; ++r) at[r] = r;
    for (std::size_t r = 0; r < kLossRows; ++r) {
      block.log_prob[r] = block.weight[r] != 0.0f ? s.centred[at[r]] - s.log_sum[r] : 0.0f;
    }
    std::copy_n(s.entropy, kLossRows, block.entropy);
    loss_rows(options, share, block, sums);
    gradients(block, entropy_share, s);
    for (std::size_t r = 0; r < count; ++r) s.centred[at[r]] += block.log_prob_gradient[r];
    float* out = logit_gradients.data() + begin * n;
    for (std::size_t r = 0; r < count; ++r) {
      for (std::size_t a = 0; a < n; ++a) out[r * n + a] = s.centred[a * kLossRows + r];
    }
    std::copy_n(block.value_gradient, count, value_gradients.data() + begin);
  }
  return finish(options, sums, weight);
}

void categorical_log_probs(std::span<const float> logits, std::span<const std::int32_t> actions,
                           std::span<float> log_probs) {
  const std::size_t n = action_count(logits, actions);
  require_size("log_probs", log_probs.size(), actions.size(), "one per action");
  Scratch scratch(n);
  Softmax& s = scratch.softmax;
  alignas(64) float present[kLossRows];
  std::fill_n(present, kLossRows, 1.0f);
  for (std::size_t begin = 0; begin < actions.size(); begin += kLossRows) {
    const std::size_t count = std::min(kLossRows, actions.size() - begin);
    load_logits(logits.data() + begin * n, count, present, s);
    softmax(s);
    for (std::size_t r = 0; r < count; ++r) {
      const std::size_t action = checked_action(actions, begin + r, n);
      log_probs[begin + r] = s.centred[action * kLossRows + r] - s.log_sum[r];
    }
  }
}

}  // namespace gristmill
