// The closed-form losses against torch's autograd of the same losses as papers and libraries write
// them, in double.

#include "learner/losses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <limits>
#include <ostream>
#include <vector>

namespace gristmill {
namespace {

using ::testing::HasSubstr;

struct Case {
  std::int64_t samples = 0, width = 0;  // B; A actions, or D dimensions
  std::vector<float> outputs, log_std, box_actions, values, old_log_probs, advantages, targets, old_values,
      weights;
  std::vector<std::int32_t> actions;

  LossSamples spans() const { return {values, old_log_probs, advantages, targets, old_values, weights}; }
};

torch::Tensor tensor(const std::vector<float>& values) {
  return torch::tensor(std::vector<double>(values.begin(), values.end()), torch::kFloat64);
}

torch::Tensor categorical_log_prob(const Case& c, const torch::Tensor& logits) {
  const torch::Tensor actions = torch::tensor(std::vector<std::int64_t>(c.actions.begin(), c.actions.end()));
  return torch::log_softmax(logits, 1).gather(1, actions.unsqueeze(1)).squeeze(1);
}
torch::Tensor gaussian_log_prob(const Case& c, const torch::Tensor& means, const torch::Tensor& log_std) {
  const torch::Tensor z = (tensor(c.box_actions).reshape({c.samples, c.width}) - means) / log_std.exp();
  return (-0.5 * z * z - log_std - 0.5 * std::log(2 * M_PI)).sum(1);
}

// What libraries write with a dozen tensor operations each.
struct Reference {
  torch::Tensor loss, policy_loss, value_loss, entropy, approx_kl, clip_fraction;

  Reference(const LossOptions& o, const Case& c, const torch::Tensor& log_prob,
            const torch::Tensor& entropies, const torch::Tensor& values) {
    const torch::Tensor weights =
        c.weights.empty() ? torch::ones({c.samples}, torch::kFloat64) : tensor(c.weights);
    const auto mean = [&](const torch::Tensor& x) { return (weights * x).sum() / weights.sum(); };
    const torch::Tensor log_ratio = log_prob - tensor(c.old_log_probs);
    const torch::Tensor ratio = log_ratio.exp();
    const torch::Tensor advantages = tensor(c.advantages), targets = tensor(c.targets);
    if (o.objective == Objective::kClipped) {
      const torch::Tensor bounded = ratio.clamp(1 - o.clip_range, 1 + o.clip_range);
      policy_loss = -mean(torch::min(ratio * advantages, bounded * advantages));
      clip_fraction = mean(((ratio - 1).abs() > o.clip_range).to(torch::kFloat64));
    } else {
      policy_loss = -mean(advantages * log_prob);
      clip_fraction = torch::zeros({}, torch::kFloat64);
    }
    torch::Tensor squared = (values - targets).pow(2);
    if (o.value_clip_range > 0) {
      const torch::Tensor old_values = tensor(c.old_values);
      const torch::Tensor held =
          old_values + (values - old_values).clamp(-o.value_clip_range, o.value_clip_range);
      squared = torch::max(squared, (held - targets).pow(2));
    }
    value_loss = mean(squared);
    entropy = mean(entropies);
    approx_kl = mean((ratio - 1) - log_ratio);
    loss = policy_loss + o.value_coefficient * value_loss - o.entropy_coefficient * entropy;
  }
};

// Ratios on both sides of, and beyond, the clipping range, with advantages of both signs; values that
// moved by more than the value clipping range and by less; targets on either side of both.
Case random_case(std::int64_t samples, std::int64_t width, bool discrete, bool weighted, std::uint64_t seed) {
  torch::manual_seed(seed);
  const auto floats = [](const torch::Tensor& t) {
    const torch::Tensor flat = t.to(torch::kFloat32).contiguous();
    return std::vector<float>(flat.data_ptr<float>(), flat.data_ptr<float>() + flat.numel());
  };
  Case c;
  c.samples = samples;
  c.width = width;
  const torch::Tensor outputs = 1.5 * torch::randn({samples, width});
  c.outputs = floats(outputs);
  torch::Tensor log_prob;
  if (discrete) {
    const torch::Tensor actions = torch::randint(width, {samples}, torch::kInt32);
    c.actions.assign(actions.data_ptr<std::int32_t>(), actions.data_ptr<std::int32_t>() + samples);
    log_prob = categorical_log_prob(c, tensor(c.outputs).reshape({samples, width}));
  } else {
    c.log_std = floats(0.5 * torch::randn({width}));
    c.box_actions = floats(outputs + torch::randn({samples, width}));
    log_prob = gaussian_log_prob(c, tensor(c.outputs).reshape({samples, width}), tensor(c.log_std));
  }
  c.old_log_probs = floats(log_prob + 0.3 * torch::randn({samples}));
  c.advantages = floats(torch::randn({samples}));
  const torch::Tensor values = 2 * torch::randn({samples});
  c.values = floats(values);
  c.old_values = floats(values + 0.4 * torch::randn({samples}));
  c.targets = floats(values + torch::randn({samples}));
  if (weighted) {
    c.weights = floats(torch::rand({samples}) * (torch::rand({samples}) > 0.3).to(torch::kFloat32));
    c.weights[0] = 0;
  }
  return c;
}

void expect_equal(const char* what, std::span<const float> ours, const torch::Tensor& theirs) {
  const torch::Tensor flat = theirs.reshape({-1});
  ASSERT_EQ(static_cast<std::int64_t>(ours.size()), flat.numel());
  const auto* reference = flat.contiguous().data_ptr<double>();
  // Each gradient carries a factor 1 / B: compared before that factor, so that 1e-5 means something.
  for (std::size_t i = 0; i < ours.size(); ++i) {
    ASSERT_NEAR(ours[i], reference[i], 1e-5 * std::max(1.0, std::abs(reference[i]))) << what << " " << i;
  }
}

void expect_equal(const LossStats& ours, const Reference& theirs) {
  EXPECT_NEAR(ours.loss, theirs.loss.item<double>(), 1e-5);
  EXPECT_NEAR(ours.policy_loss, theirs.policy_loss.item<double>(), 1e-5);
  EXPECT_NEAR(ours.value_loss, theirs.value_loss.item<double>(), 1e-5);
  EXPECT_NEAR(ours.entropy, theirs.entropy.item<double>(), 1e-5);
  EXPECT_NEAR(ours.approx_kl, theirs.approx_kl.item<double>(), 1e-5);
  EXPECT_NEAR(ours.clip_fraction, theirs.clip_fraction.item<double>(), 1e-6);
}

double scale_of(const Case& c) { return static_cast<double>(c.samples); }

void scale(std::vector<float>& gradients, double by) {
  for (float& g : gradients) g = static_cast<float>(static_cast<double>(g) * by);
}

struct Setting {
  Objective objective;
  bool clip_values, weighted;
  std::int64_t samples, width;
};

// What a test's name ends in.
void PrintTo(const Setting& setting, std::ostream* out) {
  *out << (setting.objective == Objective::kClipped ? "clipped" : "policy gradient")
       << (setting.clip_values ? ", clipped values" : "") << (setting.weighted ? ", weighted" : "") << ", "
       << setting.samples << " x " << setting.width;
}

class Losses : public ::testing::TestWithParam<Setting> {
 protected:
  LossOptions options() const {
    return {.objective = GetParam().objective,
            .clip_range = 0.2,
            .value_clip_range = GetParam().clip_values ? 0.3 : 0.0,
            .value_coefficient = 0.7,
            .entropy_coefficient = 0.05};
  }
};

TEST_P(Losses, of_categorical_actions_have_the_value_and_gradients_of_autograd) {
  const auto [objective, clip_values, weighted, samples, width] = GetParam();
  const Case c = random_case(samples, width, true, weighted, 7);
  const torch::Tensor logits = tensor(c.outputs).reshape({samples, width}).requires_grad_(true);
  const torch::Tensor values = tensor(c.values).requires_grad_(true);
  const torch::Tensor log_p = torch::log_softmax(logits, 1);
  const Reference reference(options(), c, categorical_log_prob(c, logits), -(log_p.exp() * log_p).sum(1),
                            values);
  reference.loss.backward();

  std::vector<float> logit_gradients(c.outputs.size(), NAN), value_gradients(c.values.size(), NAN);
  const LossStats stats =
      categorical_loss(options(), c.outputs, c.actions, c.spans(), logit_gradients, value_gradients);
  expect_equal(stats, reference);
  scale(logit_gradients, scale_of(c));
  scale(value_gradients, scale_of(c));
  expect_equal("logit", logit_gradients, logits.grad() * scale_of(c));
  expect_equal("value", value_gradients, values.grad() * scale_of(c));
}

TEST_P(Losses, of_gaussian_actions_have_the_value_and_gradients_of_autograd) {
  const auto [objective, clip_values, weighted, samples, width] = GetParam();
  const Case c = random_case(samples, width, false, weighted, 8);
  const torch::Tensor means = tensor(c.outputs).reshape({samples, width}).requires_grad_(true);
  const torch::Tensor log_std = tensor(c.log_std).requires_grad_(true);
  const torch::Tensor values = tensor(c.values).requires_grad_(true);
  const torch::Tensor entropy = (log_std + 0.5 * (1 + std::log(2 * M_PI))).sum().expand({samples});
  const Reference reference(options(), c, gaussian_log_prob(c, means, log_std), entropy, values);
  reference.loss.backward();

  std::vector<float> mean_gradients(c.outputs.size(), NAN), log_std_gradients(c.log_std.size(), NAN),
      value_gradients(c.values.size(), NAN);
  const LossStats stats = gaussian_loss(options(), c.outputs, c.log_std, c.box_actions, c.spans(),
                                        mean_gradients, log_std_gradients, value_gradients);
  // Log-probabilities of many dimensions are large numbers; single precision leaves 1e-7 of them.
  expect_equal(stats, reference);
  scale(mean_gradients, scale_of(c));
  scale(value_gradients, scale_of(c));
  expect_equal("mean", mean_gradients, means.grad() * scale_of(c));
  expect_equal("log_std", log_std_gradients, log_std.grad());
  expect_equal("value", value_gradients, values.grad() * scale_of(c));
}

std::vector<Setting> settings() {
  std::vector<Setting> result;
  for (const Objective objective : {Objective::kClipped, Objective::kPolicyGradient}) {
    for (const bool clip_values : {false, true}) {
      for (const bool weighted : {false, true}) {
        // One block, less than one, several and a rest; widths that fill no vector.
        for (const auto& [samples, width] : {std::pair{64, 2}, {5, 3}, {331, 6}, {130, 19}}) {
          result.push_back({objective, clip_values, weighted, samples, width});
        }
      }
    }
  }
  return result;
}

INSTANTIATE_TEST_SUITE_P(all_branches, Losses, ::testing::ValuesIn(settings()));

// Four samples, two actions with even odds (log 1/2 each), so that everything is a round number.
struct Four {
  std::vector<float> logits = std::vector<float>(8, 0.0f);
  std::vector<std::int32_t> actions = {0, 1, 0, 1};
  std::vector<float> values = {1, 2, 3, 4}, targets = {2, 2, 2, 2}, old_values, weights;
  std::vector<float> old_log_probs, advantages = {1, -1, 2, -3};
  std::vector<float> logit_gradients = std::vector<float>(8), value_gradients = std::vector<float>(4);

  LossStats run(const LossOptions& options) {
    return categorical_loss(options, logits, actions,
                            {values, old_log_probs, advantages, targets, old_values, weights},
                            logit_gradients, value_gradients);
  }
};

TEST(CategoricalLoss, matches_values_worked_out_by_hand) {
  // Ratios 2, 2, 1, 1/2 with clipping at 0.25 and advantages 1, -1, 2, -3:
  //   min(2*1, 1.25*1) = 1.25 (clipped: no gradient)      min(2*-1, 1.25*-1) = -2 (gradient -1*2)
  //   1*2 = 2 (gradient 2)                                min(0.5*-3, 0.75*-3) = -2.25 (no gradient)
  //   policy_loss = -(1.25 - 2 + 2 - 2.25) / 4 = 0.25;    clip_fraction 3/4
  //   value_loss = (1 + 0 + 1 + 4) / 4 = 1.5;  entropy = log 2
  //   k3: (2-1) - log 2, twice; 0; (0.5-1) + log 2: sum 1.5 - log 2, mean (1.5 - log 2) / 4
  const float half = std::log(0.5f);
  Four four;
  four.old_log_probs = {half - std::log(2.0f), half - std::log(2.0f), half, half + std::log(2.0f)};
  const LossStats stats =
      four.run({.clip_range = 0.25, .value_coefficient = 0.5, .entropy_coefficient = 0.1});
  EXPECT_NEAR(stats.policy_loss, 0.25, 1e-6);
  EXPECT_NEAR(stats.value_loss, 1.5, 1e-6);
  EXPECT_NEAR(stats.entropy, std::log(2.0), 1e-6);
  EXPECT_NEAR(stats.loss, 0.25 + 0.5 * 1.5 - 0.1 * std::log(2.0), 1e-6);
  EXPECT_NEAR(stats.clip_fraction, 0.75, 1e-9);
  EXPECT_NEAR(stats.approx_kl, (1.5 - std::log(2.0)) / 4, 1e-6);
  EXPECT_EQ(stats.weight, 4);
  // d/dz of log p(a) is +-1/2 here, and the entropy is at its maximum (no gradient):
  //   sample 1: -(1/4) * (-2) * (-1/2, 1/2);   sample 2: -(1/4) * 2 * (1/2, -1/2)
  EXPECT_THAT(four.logit_gradients, ::testing::Pointwise(::testing::FloatNear(1e-6f),
                                                         {0.f, 0.f, -0.25f, 0.25f, -0.25f, 0.25f, 0.f, 0.f}));
  // 0.5 * 2 * (V - target) / 4
  EXPECT_THAT(four.value_gradients,
              ::testing::Pointwise(::testing::FloatNear(1e-6f), {-0.25f, 0.f, 0.25f, 0.5f}));
}

TEST(CategoricalLoss, explains_variance_as_one_less_the_residuals_share) {
  Four four;
  four.old_log_probs = std::vector<float>(4, std::log(0.5f));
  // targets 1, 2, 3, 5 (variance 2.1875), residuals 0, 0, 0, 1 (variance 0.1875)
  four.targets = {1, 2, 3, 5};
  EXPECT_NEAR(four.run({}).explained_variance, 1 - 0.1875 / 2.1875, 1e-9);
  // A constant offset of the critic is no unexplained variance.
  four.targets = {1001, 1002, 1003, 1004};
  EXPECT_NEAR(four.run({}).explained_variance, 1, 1e-9);
  four.targets = {3, 3, 3, 3};
  EXPECT_TRUE(std::isnan(four.run({}).explained_variance));
}

TEST(CategoricalLoss, ignores_whatever_a_sample_of_weight_zero_holds) {
  Four clean, dirty;
  clean.old_log_probs = dirty.old_log_probs = std::vector<float>(4, -1.0f);
  clean.weights = dirty.weights = {1, 0, 1, 1};
  const float nan = std::numeric_limits<float>::quiet_NaN();
  dirty.logits[2] = dirty.values[1] = dirty.advantages[1] = dirty.targets[1] = dirty.old_log_probs[1] = nan;
  dirty.logits[3] = std::numeric_limits<float>::infinity();
  dirty.actions[1] = -7;
  const LossOptions options{.entropy_coefficient = 0.01};
  EXPECT_EQ(clean.run(options).loss, dirty.run(options).loss);
  EXPECT_EQ(clean.logit_gradients, dirty.logit_gradients);
  EXPECT_EQ(clean.value_gradients, dirty.value_gradients);
  EXPECT_EQ(dirty.value_gradients[1], 0);
  EXPECT_EQ(dirty.logit_gradients[2], 0);
}

TEST(CategoricalLoss, is_zero_when_every_weight_is) {
  Four four;
  four.old_log_probs = std::vector<float>(4, -1.0f);
  four.weights = std::vector<float>(4, 0.0f);
  const LossStats stats = four.run({.entropy_coefficient = 0.1});
  EXPECT_EQ(stats.loss, 0);
  EXPECT_EQ(stats.weight, 0);
  for (const float g : four.logit_gradients) EXPECT_EQ(g, 0);
}

TEST(CategoricalLoss, is_not_finite_when_any_input_is_not) {
  const auto poisoned = [](auto member, std::size_t at, float with) {
    Four four;
    four.old_log_probs = std::vector<float>(4, -1.0f);
    (four.*member)[at] = with;
    return four.run({.entropy_coefficient = 0.01}).loss;
  };
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {nan, infinity, -infinity}) {
    EXPECT_FALSE(std::isfinite(poisoned(&Four::logits, 4, bad))) << bad;  // the action taken
    EXPECT_FALSE(std::isfinite(poisoned(&Four::logits, 5, bad))) << bad;  // another one
    EXPECT_FALSE(std::isfinite(poisoned(&Four::values, 2, bad))) << bad;
    EXPECT_FALSE(std::isfinite(poisoned(&Four::targets, 2, bad))) << bad;
    EXPECT_FALSE(std::isfinite(poisoned(&Four::advantages, 2, bad))) << bad;
  }
  EXPECT_TRUE(std::isnan(poisoned(&Four::old_log_probs, 2, nan)));
}

TEST(CategoricalLoss, stays_accurate_for_logits_of_any_size) {
  // A shift of all logits changes nothing; a certain action has log-probability 0 and entropy 0.
  const std::vector<float> logits = {1e4f, 1e4f + 1, -3e4f, 500, -500, 3, 0, 0, 0};
  const std::vector<std::int32_t> actions = {0, 1, 2};
  std::vector<float> log_probs(3);
  categorical_log_probs(logits, actions, log_probs);
  EXPECT_NEAR(log_probs[0], -std::log1p(std::exp(1.0)), 1e-6);
  EXPECT_NEAR(log_probs[1], -1000, 1e-3);
  EXPECT_NEAR(log_probs[2], -std::log(3.0), 1e-6);
}

TEST(CategoricalLoss, names_an_action_out_of_range) {
  Four four;
  four.old_log_probs = std::vector<float>(4, -1.0f);
  four.actions[2] = 2;
  try {
    four.run({});
    FAIL() << "action 2 of 2 was accepted";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("actions[2] is 2, expected 0 to 1"));
  }
}

TEST(CategoricalLoss, names_the_array_of_the_wrong_size) {
  Four four;
  four.old_log_probs = std::vector<float>(3, -1.0f);
  try {
    four.run({});
    FAIL() << "three old_log_probs for four samples were accepted";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("old_log_probs has 3 elements, expected 4"));
  }
  four.old_log_probs.push_back(-1);
  EXPECT_THROW(four.run({.value_clip_range = 0.1}), std::invalid_argument);  // without old_values
  four.logits.pop_back();
  EXPECT_THROW(four.run({}), std::invalid_argument);
}

TEST(GaussianLoss, gives_log_probabilities_worked_out_by_hand) {
  // z = (3 - 1) / 2 = 1 and (0 - 0) / 1 = 0: -1/2 - log 2 - log(2 pi)
  std::vector<float> log_probs(1);
  gaussian_log_probs(std::vector<float>{1, 0}, std::vector<float>{std::log(2.0f), 0},
                     std::vector<float>{3, 0}, log_probs);
  EXPECT_NEAR(log_probs[0], -0.5 - std::log(2.0) - std::log(2 * M_PI), 1e-6);
}

TEST(Normalize, gives_mean_zero_and_deviation_one) {
  // 1, 2, 3, 4, 5: mean 3, unbiased variance 10 / 4, so 1 becomes -2 / sqrt(2.5).
  std::vector<float> x = {1, 2, 3, 4, 5};
  normalize(x);
  EXPECT_NEAR(x[0], -2 / std::sqrt(2.5), 1e-6);
  EXPECT_NEAR(x[2], 0, 1e-6);
}

TEST(Normalize, counts_only_samples_of_positive_weight) {
  std::vector<float> x = {1, 2, 3, 4, 5, 1e6f};
  normalize(x, std::vector<float>{1, 1, 1, 1, 1, 0});
  EXPECT_NEAR(x[4], 2 / std::sqrt(2.5), 1e-6);
}

TEST(Normalize, keeps_one_or_equal_samples_finite) {
  std::vector<float> one = {7}, equal = {7, 7, 7}, none;
  normalize(one);
  normalize(equal);
  normalize(none);
  EXPECT_EQ(one[0], 0);
  EXPECT_EQ(equal[1], 0);
}

}  // namespace
}  // namespace gristmill
