#pragma once

// The update: a batch of trajectories → new parameters. APPO and IMPALA on V-trace targets, PPO on
// GAE's. One thread.

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/stage_clock.h"
#include "learner/batch.h"
#include "learner/losses.h"
#include "learner/optimizer.h"
#include "learner/vtrace.h"
#include "rollout/config.h"
#include "rollout/policy.h"
#include "rollout/random.h"

namespace gristmill {

// Means over the minibatches of one update.
struct UpdateStats {
  LossStats loss;
  double grad_norm = 0;
  double learning_rate = 0;
  // Empty, or what was not finite ("loss", "gradient norm") and in which epoch and minibatch; the
  // update stopped there and the parameters are those of the last good step.
  std::string not_finite;
};

class Learner {
 public:
  // Throws ConfigError when learner.device does not exist here.
  Learner(const Config& config, const EnvironmentSpec& environment);

  // All epochs over the batch. `progress` of the run in [0, 1], for the schedule.
  UpdateStats update(const BatchView& batch, double progress);

  // The stages of updates are charged to `clock` from now on; it must outlive the learner.
  void charge_to(StageClock* clock) { clock_ = clock; }

  Policy& policy() { return policy_; }
  // The flat parameters, [parameter_count].
  std::span<const float> parameters() const;
  const Adam& optimizer() const { return optimizer_; }
  void restore(std::span<const float> parameters, std::span<const float> first_moment,
               std::span<const float> second_moment, std::int64_t optimizer_steps);

  // The stream that shuffles minibatches, for checkpoints.
  const std::array<std::uint64_t, 4>& random_state() const { return random_.state(); }
  void restore_random_state(const std::array<std::uint64_t, 4>& state) { random_.set_state(state); }

 private:
  // Once a batch.
  void scale_rewards(const BatchView& batch);
  void compute_gae(const BatchView& batch);

  // One gradient step on `rows`, the trajectories [begin, begin + rows.trajectories) of the batch:
  // forward → advantages → loss → backward → Adam. False: something was not finite.
  bool learn_minibatch(const BatchView& rows, std::int64_t begin, UpdateStats& stats);
  PolicyOutput forward(const BatchView& rows);
  void copy_outputs(const PolicyOutput& output, const BatchView& rows);
  void compute_advantages(const BatchView& rows, std::int64_t begin);
  LossStats compute_loss(const BatchView& rows);
  void backward(const BatchView& rows);

  TrajectoryRows trajectory_rows(const BatchView& rows, std::int64_t begin,
                                 std::span<const float> values) const;
  void log_probs(const BatchView& rows, std::span<float> out);
  std::span<const float> acting_values(const BatchView& rows);
  void copy_log_std();
  void to_device();
  void charge(Measure stage) {
    if (clock_ != nullptr) clock_->charge(stage);
  }

  const Config config_;
  const Schedule schedule_;
  const bool on_policy_;  // ppo: GAE once a batch; else V-trace at every minibatch
  const torch::Device device_;
  Policy policy_;
  torch::Tensor parameters_, gradient_;  // flat, float32, on device_
  torch::Tensor host_parameters_;        // what Adam steps: parameters_ itself on the CPU
  Adam optimizer_;
  Random random_;
  LossOptions loss_options_;
  StageClock* clock_ = nullptr;

  // Scratch, kept between calls.
  std::vector<float> rewards_, batch_targets_, batch_advantages_;      // [n, T] of the batch
  std::vector<float> action_parameters_, action_parameter_gradients_;  // [m, T, A] of the minibatch
  std::vector<float> values_, old_values_, value_gradients_;           // [m, T]
  std::vector<float> targets_, advantages_;                            // [m, T]
  std::vector<float> bootstrapped_values_;                             // [m, T+1]
  std::vector<float> log_std_, log_std_gradients_;                     // [action_dims]
  torch::Tensor output_gradient_;                                      // [m * (T+1), A + 1]
};

}  // namespace gristmill
