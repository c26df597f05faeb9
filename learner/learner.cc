#include "learner/learner.h"

#include <ATen/Context.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "learner/gae.h"
#include "learner/vtrace.h"

namespace gristmill {
namespace {

torch::Device device_of(const std::string& name) {
  const torch::Device device(name);
  if (device.is_cuda() && !at::hasCUDA()) {
    throw ConfigError("learner.device: '" + name +
                      "' asked for, but this libtorch sees no CUDA device; use cpu");
  }
  return device;
}

LossOptions loss_options_of(const Config::Learner& config) {
  return {.objective = config.algorithm == "impala" ? Objective::kPolicyGradient : Objective::kClipped,
          .clip_range = config.clip_range,
          .value_clip_range = config.value_clip_range,
          .value_coefficient = config.value_coefficient,
          .entropy_coefficient = config.entropy_coefficient};
}

// Of the sums of several minibatches' statistics, weighted by their samples.
void accumulate(LossStats& sum, const LossStats& stats) {
  const auto add = [&](double LossStats::*member) { sum.*member += stats.*member * stats.weight; };
  for (const auto member :
       {&LossStats::loss, &LossStats::policy_loss, &LossStats::value_loss, &LossStats::entropy,
        &LossStats::approx_kl, &LossStats::clip_fraction, &LossStats::explained_variance}) {
    add(member);
  }
  sum.weight += stats.weight;
}

void average(LossStats& sum) {
  if (sum.weight == 0) return;
  for (const auto member :
       {&LossStats::loss, &LossStats::policy_loss, &LossStats::value_loss, &LossStats::entropy,
        &LossStats::approx_kl, &LossStats::clip_fraction, &LossStats::explained_variance}) {
    sum.*member /= sum.weight;
  }
}

}  // namespace

Learner::Learner(const Config& config, const EnvironmentSpec& environment)
    : config_(config),
      schedule_(schedule_from_name(config.learner.schedule)),
      on_policy_(config.learner.algorithm == "ppo"),
      device_(device_of(config.learner.device)),
      policy_(config.policy, environment),
      parameters_(policy_.initial_parameters(static_cast<std::uint64_t>(config.seed)).to(device_)),
      gradient_(torch::zeros_like(parameters_)),
      host_parameters_(device_.is_cpu() ? parameters_ : parameters_.to(torch::kCPU)),
      optimizer_(policy_.parameter_count(), {.beta1 = config.learner.adam_beta1,
                                             .beta2 = config.learner.adam_beta2,
                                             .epsilon = config.learner.adam_epsilon,
                                             .max_grad_norm = config.learner.max_grad_norm}),
      random_(stream_seed(static_cast<std::uint64_t>(config.seed), 0)),
      loss_options_(loss_options_of(config.learner)),
      output_gradient_(torch::empty({0})) {
  policy_.bind(parameters_, gradient_);
}

std::span<const float> Learner::parameters() const {
  return {host_parameters_.const_data_ptr<float>(), static_cast<std::size_t>(host_parameters_.numel())};
}

void Learner::restore(std::span<const float> parameters, std::span<const float> first_moment,
                      std::span<const float> second_moment, std::int64_t optimizer_steps) {
  if (static_cast<std::int64_t>(parameters.size()) != policy_.parameter_count()) {
    throw std::invalid_argument("the checkpoint holds " + std::to_string(parameters.size()) +
                                " parameters, this policy has " + std::to_string(policy_.parameter_count()));
  }
  optimizer_.restore(first_moment, second_moment, optimizer_steps);
  std::ranges::copy(parameters, host_parameters_.mutable_data_ptr<float>());
  to_device();
}

void Learner::to_device() {
  if (device_.is_cpu()) return;
  const torch::NoGradGuard no_grad;
  parameters_.copy_(host_parameters_);
}

UpdateStats Learner::update(const BatchView& batch, double progress) {
  UpdateStats stats;
  stats.learning_rate = scheduled(schedule_, config_.learner.learning_rate, progress);
  scale_rewards(batch);
  if (on_policy_) compute_gae(batch);
  charge(Measure::kLoss);
  const std::int64_t size = std::min(config_.learner.minibatch_trajectories, batch.trajectories);
  std::vector<std::int64_t> starts;
  for (std::int64_t begin = 0; begin < batch.trajectories; begin += size) starts.push_back(begin);
  int steps = 0;
  for (std::int64_t epoch = 0; epoch < config_.learner.epochs; ++epoch) {
    // Minibatches are runs of whole trajectories, so that they too are views of the ring.
    for (std::size_t i = starts.size(); i > 1; --i) std::swap(starts[i - 1], starts[random_.next() % i]);
    for (const std::int64_t begin : starts) {
      const BatchView rows = batch.slice(begin, std::min(size, batch.trajectories - begin));
      if (!learn_minibatch(rows, begin, stats)) {
        stats.not_finite += " in epoch " + std::to_string(epoch) + ", trajectories " + std::to_string(begin) +
                            " to " + std::to_string(begin + rows.trajectories - 1) + " of the batch";
        return stats;
      }
      ++steps;
    }
  }
  average(stats.loss);
  stats.grad_norm /= std::max(steps, 1);
  return stats;
}

void Learner::scale_rewards(const BatchView& batch) {
  const auto rewards = batch.field<float>(kRewards);
  rewards_.assign(rewards.begin(), rewards.end());
  const auto scale = static_cast<float>(config_.learner.reward_scale);
  for (float& reward : rewards_) reward *= scale;
}

TrajectoryRows Learner::trajectory_rows(const BatchView& rows, std::int64_t begin,
                                        std::span<const float> values) const {
  const auto steps = static_cast<std::size_t>(rows.trajectories * rows.unroll);
  return {.trajectories = rows.trajectories,
          .steps = rows.unroll,
          .values = values,
          .rewards = std::span(rewards_).subspan(static_cast<std::size_t>(begin * rows.unroll), steps),
          .terminated = rows.field<std::uint8_t>(kTerminated),
          .truncated = rows.field<std::uint8_t>(kTruncated),
          .final_values = rows.field<float>(kFinalValues)};
}

void Learner::compute_gae(const BatchView& batch) {
  const auto steps = static_cast<std::size_t>(batch.trajectories * batch.unroll);
  batch_targets_.resize(steps);
  batch_advantages_.resize(steps);
  // The batch was collected under the present parameters: the acting values are this critic's.
  gae(trajectory_rows(batch, 0, batch.field<float>(kValues)),
      {.gamma = config_.learner.gamma, .lambda = config_.learner.gae_lambda}, batch_targets_,
      batch_advantages_);
}

bool Learner::learn_minibatch(const BatchView& rows, std::int64_t begin, UpdateStats& stats) {
  const PolicyOutput output = forward(rows);
  copy_outputs(output, rows);
  charge(Measure::kForward);
  compute_advantages(rows, begin);
  const LossStats loss = compute_loss(rows);
  charge(Measure::kLoss);
  if (!std::isfinite(loss.loss)) {
    stats.not_finite = "the loss is " + std::to_string(loss.loss);
    return false;
  }
  backward(rows);
  const torch::Tensor gradient = gradient_.to(torch::kCPU);
  charge(Measure::kBackward);
  const auto count = static_cast<std::size_t>(gradient.numel());
  const Adam::Step step = optimizer_.step({host_parameters_.mutable_data_ptr<float>(), count},
                                          {gradient.const_data_ptr<float>(), count}, stats.learning_rate);
  if (!step.applied) {
    stats.not_finite = "the gradient's norm is " + std::to_string(step.grad_norm);
    return false;
  }
  to_device();
  charge(Measure::kOptimiser);
  accumulate(stats.loss, loss);
  stats.grad_norm += step.grad_norm;
  return true;
}

PolicyOutput Learner::forward(const BatchView& rows) {
  const EnvironmentSpec& environment = policy_.environment();
  const auto dtype = environment.observation_dtype == DType::kUInt8 ? torch::kUInt8 : torch::kFloat32;
  auto* data = const_cast<std::byte*>(rows.fields[kObservations]);  // only read
  const torch::Tensor observations = torch::from_blob(
      data, {rows.trajectories * (rows.unroll + 1), environment.observation_elements()}, dtype);
  return policy_.forward(observations.to(device_));
}

// Out of the network's outputs over T+1 steps: values of all, action parameters of the T that acted.
void Learner::copy_outputs(const PolicyOutput& output, const BatchView& rows) {
  const torch::Tensor parameters = output.action_parameters.to(torch::kCPU);
  const torch::Tensor values = output.values.to(torch::kCPU);
  const std::int64_t width = parameters.size(1);
  const std::int64_t steps = rows.trajectories * rows.unroll;
  action_parameters_.resize(static_cast<std::size_t>(steps * width));
  values_.resize(static_cast<std::size_t>(steps));
  bootstrapped_values_.resize(static_cast<std::size_t>(steps + rows.trajectories));
  const float* from = parameters.const_data_ptr<float>();
  const float* from_values = values.const_data_ptr<float>();
  float* to = action_parameters_.data();
  float* to_values = values_.data();
  float* to_bootstrapped = bootstrapped_values_.data();
  for (std::int64_t row = 0; row < rows.trajectories; ++row) {
    for (std::int64_t t = 0; t <= rows.unroll;
         ++t, from += parameters.stride(0), from_values += values.stride(0)) {
      *to_bootstrapped++ = *from_values;
      if (t == rows.unroll) continue;
      *to_values++ = *from_values;
      for (std::int64_t a = 0; a < width; ++a) *to++ = from[a];
    }
  }
}

// targets_ and advantages_, [m, T].
void Learner::compute_advantages(const BatchView& rows, std::int64_t begin) {
  const auto steps = static_cast<std::size_t>(rows.trajectories * rows.unroll);
  if (on_policy_) {
    const auto first = begin * rows.unroll;
    targets_.assign(batch_targets_.begin() + first,
                    batch_targets_.begin() + first + static_cast<std::ptrdiff_t>(steps));
    advantages_.assign(batch_advantages_.begin() + first,
                       batch_advantages_.begin() + first + static_cast<std::ptrdiff_t>(steps));
  } else {
    targets_.resize(steps);
    advantages_.resize(steps);
    const auto old = rows.field<float>(kLogProbs);
    log_probs(rows, advantages_);
    for (std::size_t i = 0; i < steps; ++i) advantages_[i] -= old[i];  // log ratios, replaced in place
    // The clipped objective has the ratio in itself; only the plain policy gradient needs it here.
    const bool weighted = loss_options_.objective == Objective::kPolicyGradient;
    const double policy_rho = weighted ? config_.learner.vtrace_rho : VTraceOptions::kUnweighted;
    vtrace(trajectory_rows(rows, begin, bootstrapped_values_), advantages_,
           {.gamma = config_.learner.gamma,
            .lambda = config_.learner.gae_lambda,
            .rho_clip = config_.learner.vtrace_rho,
            .c_clip = config_.learner.vtrace_c,
            .pg_rho_clip = policy_rho},
           targets_, advantages_);
  }
  if (config_.learner.normalize_advantages) normalize(advantages_);
}

void Learner::log_probs(const BatchView& rows, std::span<float> out) {
  if (policy_.environment().discrete()) {
    categorical_log_probs(action_parameters_, rows.field<std::int32_t>(kActions), out);
    return;
  }
  copy_log_std();
  gaussian_log_probs(action_parameters_, log_std_, rows.field<float>(kActions), out);
}

void Learner::copy_log_std() {
  const auto dims = static_cast<std::size_t>(policy_.environment().action_dims);
  const auto all = parameters();
  const auto last = all.last(dims);  // the layout ends with it
  log_std_.assign(last.begin(), last.end());
}

LossStats Learner::compute_loss(const BatchView& rows) {
  const auto old_values =
      config_.learner.value_clip_range > 0 ? acting_values(rows) : std::span<const float>{};
  const LossSamples samples{.values = values_,
                            .old_log_probs = rows.field<float>(kLogProbs),
                            .advantages = advantages_,
                            .targets = targets_,
                            .old_values = old_values,
                            .weights = {}};
  action_parameter_gradients_.resize(action_parameters_.size());
  value_gradients_.resize(values_.size());
  if (policy_.environment().discrete()) {
    return categorical_loss(loss_options_, action_parameters_, rows.field<std::int32_t>(kActions), samples,
                            action_parameter_gradients_, value_gradients_);
  }
  copy_log_std();
  log_std_gradients_.resize(log_std_.size());
  return gaussian_loss(loss_options_, action_parameters_, log_std_, rows.field<float>(kActions), samples,
                       action_parameter_gradients_, log_std_gradients_, value_gradients_);
}

// The acting policy's values of the T steps, without the bootstrap.
std::span<const float> Learner::acting_values(const BatchView& rows) {
  const auto values = rows.field<float>(kValues);
  old_values_.clear();
  for (std::int64_t row = 0; row < rows.trajectories; ++row) {
    const auto* first = values.data() + row * (rows.unroll + 1);
    old_values_.insert(old_values_.end(), first, first + rows.unroll);
  }
  return old_values_;
}

// Gradients of the outputs in, gradient_ out. The bootstrap rows have none.
void Learner::backward(const BatchView& rows) {
  const std::int64_t steps = rows.trajectories * rows.unroll;
  const auto width = static_cast<std::int64_t>(action_parameter_gradients_.size()) / steps;
  output_gradient_.resize_({steps + rows.trajectories, width + 1});
  float* to = output_gradient_.mutable_data_ptr<float>();
  const float* parameters = action_parameter_gradients_.data();
  const float* values = value_gradients_.data();
  for (std::int64_t row = 0; row < rows.trajectories; ++row) {
    for (std::int64_t t = 0; t < rows.unroll; ++t) {
      for (std::int64_t a = 0; a < width; ++a) *to++ = *parameters++;
      *to++ = *values++;
    }
    to = std::fill_n(to, width + 1, 0.0F);
  }
  policy_.backward(output_gradient_.to(device_));
  if (!policy_.environment().discrete()) {
    const auto dims = policy_.environment().action_dims;
    gradient_.narrow(0, gradient_.numel() - dims, dims)
        .copy_(torch::from_blob(log_std_gradients_.data(), {dims}));
  }
}

}  // namespace gristmill
