#pragma once

// The one description of each option: key, member (its type, and its default in Config), rule, help.
// A new option is a member of Config and a line here. No torch here.

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "rollout/config.h"

namespace gristmill {

// What a value must satisfy beyond its type. Bounds are inclusive unless said otherwise.
struct Rule {
  std::int64_t min = std::numeric_limits<std::int64_t>::min();  // integers, and each one of a list
  std::int64_t max = std::numeric_limits<std::int64_t>::max();
  double low = -std::numeric_limits<double>::max();  // numbers
  double high = std::numeric_limits<double>::max();
  bool above_low = false;                    // low itself is refused
  bool below_high = false;                   // high itself is refused
  std::vector<std::string_view> choices;     // strings; empty: free text
  std::string_view pattern;                  // strings: ECMAScript, whole match; empty: none
  std::string_view pattern_words;            // … in words, for "expected …"
  std::size_t min_items = 0, max_items = 0;  // lists
  bool json_object = false;                  // a string that holds one; a mapping in YAML
};

struct Option {
  std::string_view key;   // dotted: "learner.gamma"; without a dot at the root
  std::string_view help;  // one line, with the unit where there is one
  Rule rule;
};

namespace rules {

inline Rule any() { return {}; }
inline Rule integers(std::int64_t min, std::int64_t max = std::numeric_limits<std::int64_t>::max()) {
  Rule rule;
  rule.min = min;
  rule.max = max;
  return rule;
}
inline Rule list_of_integers(std::size_t min_items, std::size_t max_items, std::int64_t min,
                             std::int64_t max) {
  Rule rule = integers(min, max);
  rule.min_items = min_items;
  rule.max_items = max_items;
  return rule;
}
inline Rule numbers(double low, double high = std::numeric_limits<double>::max()) {
  Rule rule;
  rule.low = low;
  rule.high = high;
  return rule;
}
inline Rule numbers_above(double low, double high = std::numeric_limits<double>::max()) {
  Rule rule = numbers(low, high);
  rule.above_low = true;
  return rule;
}
inline Rule numbers_below(double low, double high) {
  Rule rule = numbers(low, high);
  rule.below_high = true;
  return rule;
}
inline Rule one_of(std::vector<std::string_view> choices) {
  Rule rule;
  rule.choices = std::move(choices);
  return rule;
}
inline Rule text(std::string_view pattern, std::string_view words) {
  Rule rule;
  rule.pattern = pattern;
  rule.pattern_words = words;
  return rule;
}
inline Rule json_object() {
  Rule rule;
  rule.json_object = true;
  return rule;
}

}  // namespace rules

// Calls visit(const Option&, member&) for every option, in the order of the dump. AnyConfig is
// Config or const Config; members are int64, double, bool, std::string or std::vector<int64>.
template <class AnyConfig, class Visitor>
void visit_options(AnyConfig& config, Visitor&& visit) {
  using namespace rules;
  const auto option = [&visit](std::string_view key, auto& member, Rule rule, std::string_view help) {
    visit(Option{key, help, std::move(rule)}, member);
  };
  constexpr std::int64_t kMany = 1'000'000'000'000'000;  // of anything counted: exact as a double too

  option("seed", config.seed, integers(0), "seed of everything random in the run");

  auto& run = config.run;
  option("run.name", run.name, text("[A-Za-z0-9_-]{0,100}", "up to 100 letters, digits, '-' or '_'"),
         "name of the run's folder; empty: made from environment, seed and time");
  option("run.dir", run.dir, text("[^\\0]+", "a folder's path"), "folder in which runs keep their folders");

  auto& train = config.train;
  option("train.total_frames", train.total_frames, integers(1, kMany),
         "environment steps to learn from, over all launches of the run");
  option("train.stop_at_return", train.stop_at_return, any(),
         "stop when the mean return of the last 100 episodes reaches this; 0: do not");

  auto& env = config.env;
  option("env.id", env.id,
         text("[A-Za-z0-9_]+|plugin:[^:]+:[A-Za-z0-9_]+|(?!plugin:)[a-z]+:[A-Za-z0-9_.:/-]+",
              "a native environment's name such as cartpole, gymnasium:<id> such as "
              "gymnasium:LunarLander-v3, envpool:<id>, or plugin:<library>:<name>"),
         "environment: a native one (cartpole, synthetic), gymnasium:<id>, envpool:<id>, or "
         "plugin:<library>:<name>");
  option("env.kwargs", env.kwargs, json_object(),
         "arguments for gymnasium.make, envpool.make or the plugin, as a mapping");

  auto& workers = config.workers;
  option("workers.count", workers.count, integers(1, 1024), "rollout worker processes");
  option("workers.envs_per_worker", workers.envs_per_worker, integers(1, 65536),
         "environments that each worker steps as one vector");
  option("workers.unroll", workers.unroll, integers(1, 65536), "steps in a trajectory");
  option("workers.start_timeout_s", workers.start_timeout_s, numbers_above(0, 86400),
         "seconds that a worker may take to start");
  option("workers.hang_timeout_s", workers.hang_timeout_s, numbers_above(0, 86400),
         "seconds without a heartbeat after which a worker is killed and restarted; named with its stack "
         "after half of them");
  option("workers.stall_warning_s", workers.stall_warning_s, numbers_above(0, 86400),
         "seconds without a trajectory from any worker after which the learner tells what each is doing");
  option("workers.max_restarts", workers.max_restarts, integers(0, 1'000'000),
         "restarts within workers.restart_window_s after which the run gives up");
  option("workers.restart_window_s", workers.restart_window_s, numbers_above(0, 86400 * 365.0),
         "seconds over which workers.max_restarts counts");
  option("workers.restart_backoff_s", workers.restart_backoff_s, numbers(0, 5),
         "seconds before the first restart; doubles at each further one, at most 5");

  auto& learner = config.learner;
  option(
      "learner.algorithm", learner.algorithm, one_of({"appo", "impala", "ppo", "drain"}),
      "appo and impala learn while workers act; ppo takes turns with them and is reproducible; drain learns "
      "nothing: random actions, batches taken and released, to measure the pipeline alone");
  option("learner.learning_rate", learner.learning_rate, numbers_above(0, 10), "Adam's step size");
  option("learner.schedule", learner.schedule, one_of({"constant", "linear"}),
         "learning rate over train.total_frames; linear: down to 0");
  option("learner.batch_trajectories", learner.batch_trajectories, integers(1, 1'000'000),
         "trajectories per batch; each batch is learned from and makes one new version");
  option("learner.minibatch_trajectories", learner.minibatch_trajectories, integers(1, 1'000'000),
         "trajectories per gradient step; divides learner.batch_trajectories");
  option("learner.epochs", learner.epochs, integers(1, 1000), "passes over each batch");
  option("learner.gamma", learner.gamma, numbers(0, 1), "discount per step");
  option("learner.gae_lambda", learner.gae_lambda, numbers(0, 1),
         "lambda of GAE (ppo) and of V-trace (appo, impala)");
  option("learner.vtrace_rho", learner.vtrace_rho, numbers_above(0),
         "V-trace: upper bound of the importance weights of the temporal differences");
  option("learner.vtrace_c", learner.vtrace_c, numbers_above(0),
         "V-trace: upper bound of the importance weights that carry corrections back");
  option("learner.clip_range", learner.clip_range, numbers_above(0, 10),
         "PPO's clipping of the probability ratio to 1 ± this");
  option("learner.value_clip_range", learner.value_clip_range, numbers(0),
         "clipping of value updates to ± this; 0: off");
  option("learner.value_coefficient", learner.value_coefficient, numbers(0), "weight of the value loss");
  option("learner.entropy_coefficient", learner.entropy_coefficient, numbers(0),
         "weight of the entropy bonus");
  option("learner.max_grad_norm", learner.max_grad_norm, numbers(0),
         "gradients are scaled down to this norm; 0: off");
  option("learner.normalize_advantages", learner.normalize_advantages, any(),
         "scale each minibatch's advantages to mean 0 and deviation 1");
  option("learner.reward_scale", learner.reward_scale, numbers_above(0),
         "factor on rewards in the learner; returns are reported without it");
  option("learner.adam_beta1", learner.adam_beta1, numbers_below(0, 1), "Adam's decay of the mean");
  option("learner.adam_beta2", learner.adam_beta2, numbers_below(0, 1), "Adam's decay of the variance");
  option("learner.adam_epsilon", learner.adam_epsilon, numbers_above(0, 1), "Adam's epsilon");
  option("learner.max_policy_lag", learner.max_policy_lag, integers(0, kMany),
         "versions; trajectories older than this are dropped and counted");
  option("learner.device", learner.device, text("cpu|cuda(:[0-9]{1,3})?", "cpu, cuda or cuda:<index>"),
         "where the learner computes: cpu, cuda or cuda:<index>");
  option("learner.threads", learner.threads, integers(1, 1024), "threads of one tensor operation");

  auto& policy = config.policy;
  option("policy.hidden_sizes", policy.hidden_sizes, list_of_integers(1, 16, 1, 65536),
         "units of each hidden layer");
  option("policy.activation", policy.activation, one_of({"tanh", "relu", "elu"}), "after each hidden layer");
  option("policy.shared_trunk", policy.shared_trunk, any(),
         "one trunk for actor and critic; false: a network each");
  option("policy.initial_log_std", policy.initial_log_std, numbers(-20, 2),
         "logarithm of the first standard deviation of continuous actions");

  option("queue.capacity", config.queue.capacity, integers(1, 10'000'000),
         "trajectories that wait for the learner at most; this bounds policy lag");

  option("checkpoint.interval_s", config.checkpoint.interval_s, numbers(0),
         "seconds between checkpoints; 0: only at the end");
  option("checkpoint.keep", config.checkpoint.keep, integers(1, 1'000'000), "newest checkpoints kept");

  option("log.interval_s", config.log.interval_s, numbers(0.01, 86400), "seconds between log lines");
  option("log.tensorboard", config.log.tensorboard, any(), "write TensorBoard events");
  option(
      "log.workers_level", config.log.workers_level, one_of({"debug", "info", "warning", "error", "off"}),
      "what of the workers' logging, warnings and output goes to log.txt; off: to the terminal as it comes");

  option("profile.counters", config.profile.counters, any(),
         "measure each stage's time, for `gristmill profile` and `top`; costs less than 1 % of the speed");
}

}  // namespace gristmill
