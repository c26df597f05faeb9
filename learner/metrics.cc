#include "learner/metrics.h"

#include <array>
#include <utility>

namespace gristmill {
namespace {

// SB3's names, so that dashboards fit; entropy_loss is the negative entropy there.
constexpr std::array kLossNames = {
    std::pair{"train/loss", &LossStats::loss},
    std::pair{"train/policy_gradient_loss", &LossStats::policy_loss},
    std::pair{"train/value_loss", &LossStats::value_loss},
    std::pair{"train/entropy_loss", &LossStats::entropy},
    std::pair{"train/approx_kl", &LossStats::approx_kl},
    std::pair{"train/clip_fraction", &LossStats::clip_fraction},
    std::pair{"train/explained_variance", &LossStats::explained_variance},
};

constexpr std::array kStages = {
    std::pair{"workers/environment_share", Counter::kEnvironmentNs},
    std::pair{"workers/inference_share", Counter::kInferenceNs},
    std::pair{"workers/assemble_share", Counter::kAssembleNs},
    std::pair{"workers/space_wait_share", Counter::kSpaceWaitNs},
    std::pair{"workers/copy_share", Counter::kCopyNs},
    std::pair{"workers/parameters_share", Counter::kParametersNs},
};

double seconds(std::chrono::steady_clock::duration d) { return std::chrono::duration<double>(d).count(); }

}  // namespace

double LagHistogram::quantile(double q) const {
  std::int64_t total = 0;
  for (const auto& [lag, count] : counts_) total += count;
  std::int64_t seen = 0;
  for (const auto& [lag, count] : counts_) {
    seen += count;
    if (static_cast<double>(seen) >= q * static_cast<double>(total)) return static_cast<double>(lag);
  }
  return 0;
}

double LagHistogram::max() const {
  return counts_.empty() ? 0 : static_cast<double>(counts_.rbegin()->first);
}

double LagHistogram::mean() const {
  double sum = 0;
  double total = 0;
  for (const auto& [lag, count] : counts_) {
    sum += static_cast<double>(lag * count);
    total += static_cast<double>(count);
  }
  return total > 0 ? sum / total : 0;
}

Metrics worker_shares(RunBoard& board) {
  Metrics shares;
  double total = 0;
  for (const auto& [name, counter] : kStages) {
    for (int i = 0; i < board.rows(); ++i) shares[name] += static_cast<double>(board.row(i).get(counter));
    total += shares[name];
  }
  if (total == 0) return {};
  for (auto& [name, share] : shares) share /= total;
  return shares;
}

void IntervalMetrics::add_update(const UpdateFigures& figures) {
  ++updates_;
  for (const auto& [name, member] : kLossNames) sums_.loss.*member += figures.loss.*member;
  sums_.grad_norm += figures.grad_norm;
  learning_rate_ = figures.learning_rate;
}

Metrics IntervalMetrics::finish(const Episodes& episodes, const Metrics& totals) {
  Metrics metrics = totals;
  const auto now = Clock::now();
  const double interval = seconds(now - begin_);
  metrics["time/fps"] = interval > 0 ? static_cast<double>(frames_) / interval : 0;
  metrics["time/learner_wait_share"] = interval > 0 ? seconds(waited_) / interval : 0;
  if (episodes.finished() > 0) {
    metrics["rollout/ep_rew_mean"] = episodes.mean_return();
    metrics["rollout/ep_len_mean"] = episodes.mean_length();
  }
  if (updates_ > 0) {
    const auto count = static_cast<double>(updates_);
    for (const auto& [name, member] : kLossNames) metrics[name] = sums_.loss.*member / count;
    metrics["train/entropy_loss"] *= -1;
    metrics["train/grad_norm"] = sums_.grad_norm / count;
    metrics["train/learning_rate"] = learning_rate_;
  }
  if (!lag_.empty()) {
    metrics["train/policy_lag"] = lag_.mean();
    metrics["train/policy_lag_max"] = lag_.max();
  }
  *this = IntervalMetrics();
  return metrics;
}

}  // namespace gristmill
