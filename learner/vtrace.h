#pragma once

// V-trace (Espeholt et al. 2018, section 4.1): value targets and policy-gradient advantages from
// trajectories of a policy some versions behind. A pure function of contiguous arrays; no torch.
// Any thread.

#include <cstdint>
#include <span>

namespace gristmill {

// n trajectories of T steps, row-major. All [n, T] unless stated. Row i is one environment slot in
// time order; an episode may end at any step and the next one begins at the step after it.
struct TrajectoryRows {
  std::int64_t trajectories = 0;  // n
  std::int64_t steps = 0;         // T
  std::span<const float> values;  // [n, T+1], of the current critic; the last bootstraps step T-1
  std::span<const float> rewards;
  // As the queue holds them, one byte each, non-zero is true. Where both are set terminated wins.
  std::span<const std::uint8_t> terminated;
  std::span<const std::uint8_t> truncated;
  std::span<const float> final_values;  // of the observation an episode was truncated at; read only there
};

struct VTraceOptions {
  double gamma = 0.99;
  double lambda = 1.0;       // c_t = lambda * min(c_clip, ratio_t)
  double rho_clip = 1.0;     // on the temporal difference: decides which policy's value is the fixed point
  double c_clip = 1.0;       // on the trace: decides how fast it is reached
  double pg_rho_clip = 1.0;  // on the advantage; kUnweighted where the objective has the ratio in itself
  static constexpr double kUnweighted = 0;
};

// ratio_t = exp(log_ratios_t), log_ratios being the current policy's log-probability of the action
// minus the acting one's, [n, T]. The state after step t is worth 0 if terminated, final_values[t]
// if truncated, values[t+1] otherwise; the trace ends with the episode.
//
//   delta_t  = min(rho_clip, ratio_t) * (r_t + gamma * next_value_t - V_t)
//   vs_t     = V_t + delta_t + gamma * c_t * (vs_{t+1} - V_{t+1})
//   adv_t    = min(pg_rho_clip, ratio_t) * (r_t + gamma * ((1 - lambda) * V + lambda * vs)_{t+1} - V_t)
//
// the last without its first factor when pg_rho_clip is kUnweighted. With lambda = 1 these are the paper's;
// with ratios of 1 the advantages are GAE(lambda)'s, for every lambda. targets [n, T] receives vs; advantages
// [n, T] may be the same memory as log_ratios. Allocates nothing. Throws std::invalid_argument naming the
// array whose size is wrong.
void vtrace(const TrajectoryRows& rows, std::span<const float> log_ratios, const VTraceOptions& options,
            std::span<float> targets, std::span<float> advantages);

// Throws std::invalid_argument naming the array of `rows` whose size does not fit [n, T].
void validate(const TrajectoryRows& rows);

}  // namespace gristmill
