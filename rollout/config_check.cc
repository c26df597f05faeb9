#include "rollout/config_check.h"

#include <algorithm>

#include "rollout/config_value.h"

namespace gristmill {
namespace {

// "queue.capacity = 32 (run.yaml:7)": the way every value is named here.
class Named {
 public:
  explicit Named(const ResolvedConfig& resolved) : resolved_(resolved) {}
  std::string operator()(const std::string& key, const std::string& value) const {
    const auto source = resolved_.sources.find(key);
    return key + " = " + value + " (" +
           (source == resolved_.sources.end() ? std::string("default") : source->second) + ")";
  }
  std::string operator()(const std::string& key, std::int64_t value) const {
    return (*this)(key, std::to_string(value));
  }

 private:
  const ResolvedConfig& resolved_;
};

// The divisors of n nearest to `wish` from below and above: what to write instead.
std::string nearest_divisors(std::int64_t n, std::int64_t wish) {
  std::int64_t below = 1, above = n;
  for (std::int64_t d = 1; d <= n; ++d) {
    if (n % d != 0) continue;
    if (d <= wish) below = d;
    if (d >= wish) {
      above = d;
      break;
    }
  }
  return below == above ? std::to_string(below) : std::to_string(below) + " or " + std::to_string(above);
}

}  // namespace

std::vector<std::string> contradictions(const ResolvedConfig& resolved) {
  std::vector<std::string> found;
  const Named named(resolved);
  const auto& [seed, run, train, env, workers, learner, policy, queue, checkpoint, log, profile] =
      resolved.config;

  const std::int64_t batch = learner.batch_trajectories;
  const std::int64_t minibatch = learner.minibatch_trajectories;
  if (minibatch > batch) {
    found.push_back(named("learner.minibatch_trajectories", minibatch) + " is more than " +
                    named("learner.batch_trajectories", batch) + ": expected a divisor of it");
  } else if (batch % minibatch != 0) {
    found.push_back(named("learner.minibatch_trajectories", minibatch) + " does not divide " +
                    named("learner.batch_trajectories", batch) + ": use " +
                    nearest_divisors(batch, minibatch));
  }

  const std::int64_t environments = workers.count * workers.envs_per_worker;
  if (learner.algorithm == "ppo" && batch != environments) {
    found.push_back(
        named("learner.batch_trajectories", batch) +
        ": ppo takes turns with its workers and learns from one trajectory of each environment: use " +
        std::to_string(environments) + ", which is " + named("workers.count", workers.count) + " times " +
        named("workers.envs_per_worker", workers.envs_per_worker));
  }

  const std::int64_t needed = std::max(batch, workers.envs_per_worker);
  if (queue.capacity < needed) {
    const bool for_batch = needed == batch;
    found.push_back(named("queue.capacity", queue.capacity) + " does not hold " +
                    (for_batch ? named("learner.batch_trajectories", batch)
                               : named("workers.envs_per_worker", workers.envs_per_worker)) +
                    ": use at least " + std::to_string(needed));
  }

  if (env.kwargs != "{}" && env.id.find(':') == std::string::npos && env.id != "synthetic") {
    found.push_back(named("env.kwargs", shown(env.kwargs)) + ": the native environment " + env.id +
                    " takes no arguments; leave it out, or use gymnasium:<id>");
  }
  return found;
}

}  // namespace gristmill
