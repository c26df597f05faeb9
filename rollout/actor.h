#pragma once

// Acting: policy forward and sampling for a vector of environments, written straight into rows.

#include <torch/types.h>

#include <cstdint>

#include "rollout/environment.h"
#include "rollout/policy.h"
#include "rollout/random.h"

namespace gristmill {

// Where acting writes. Row i belongs to environment i.
struct ActRows {
  Rows actions;    // [E] int32 or [E, action_dims] float32
  Rows log_probs;  // [E] float32
  Rows values;     // [E] float32
};

class Actor {
 public:
  // `policy` must outlive the actor and be bound before act().
  Actor(Policy& policy, std::uint64_t seed) : policy_(policy), random_(seed) {}

  // Samples (or, when greedy, takes the most probable) actions for `count` observations.
  void act(Rows observations, std::int64_t count, const ActRows& out, bool greedy = false);
  // Values only: float32 [count] into `out`.
  void values(Rows observations, std::int64_t count, Rows out);

 private:
  torch::Tensor tensor_of(Rows observations, std::int64_t count) const;

  Policy& policy_;
  Random random_;
};

}  // namespace gristmill
