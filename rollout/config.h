#pragma once

// Every option of a run. visit_options() in rollout/config_options.h describes each one once (name,
// range, help); the YAML reader, overrides, errors, resolved dump, JSON Schema, --help and the
// Python attributes all come from that description. No torch here.

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace gristmill {

struct Config {
  std::int64_t seed = 0;

  struct Run {
    std::string name;  // empty: made from env.id, seed and time at launch
    std::string dir = "runs";
  } run;

  struct Train {
    std::int64_t total_frames = 1'000'000;
    double stop_at_return = 0;  // 0: off. Mean return of the last 100 episodes
    bool has_stop_at_return() const { return stop_at_return != 0; }
  } train;

  struct Env {
    std::string id = "cartpole";
    std::string kwargs = "{}";  // a JSON object, for gymnasium.make and the synthetic environment
  } env;

  struct Workers {
    std::int64_t count = 2;
    std::int64_t envs_per_worker = 64;
    std::int64_t unroll = 32;
    double start_timeout_s = 60;
    double hang_timeout_s = 30;
    double stall_warning_s = 10;
    std::int64_t max_restarts = 10;  // within restart_window_s
    double restart_window_s = 60;
    double restart_backoff_s = 0.1;  // doubles per restart within the window, at most 5 s
  } workers;

  struct Learner {
    std::string algorithm = "appo";  // appo | impala | ppo | drain
    double learning_rate = 1e-3;
    std::string schedule = "constant";  // constant | linear
    std::int64_t batch_trajectories = 64;
    std::int64_t minibatch_trajectories = 32;
    std::int64_t epochs = 2;
    double gamma = 0.99;
    double gae_lambda = 0.95;  // ppo: GAE; appo and impala: V-trace's lambda
    double vtrace_rho = 1.0;
    double vtrace_c = 1.0;
    double clip_range = 0.2;
    double value_clip_range = 0;  // 0: off
    double value_coefficient = 0.5;
    double entropy_coefficient = 0.0;
    double max_grad_norm = 0.5;  // 0: off
    bool normalize_advantages = true;
    double reward_scale = 1.0;
    double adam_beta1 = 0.9;
    double adam_beta2 = 0.999;
    double adam_epsilon = 1e-5;
    std::int64_t max_policy_lag = 20;  // versions; older trajectories are dropped and counted
    std::string device = "cpu";
    std::int64_t threads = 1;  // intra-operation threads of the learner
  } learner;

  struct Policy {
    std::vector<std::int64_t> hidden_sizes = {64, 64};
    std::string activation = "tanh";  // tanh | relu | elu
    bool shared_trunk = true;         // one trunk for both heads, or one network each
    double initial_log_std = 0.0;     // continuous actions
  } policy;

  struct Queue {
    std::int64_t capacity = 256;  // trajectories
  } queue;

  struct Checkpoint {
    double interval_s = 30;  // 0: only at the end
    std::int64_t keep = 3;
  } checkpoint;

  struct Log {
    double interval_s = 1.0;
    bool tensorboard = true;
    std::string workers_level = "info";  // debug | info | warning | error | off
  } log;

  struct Profile {
    bool counters = true;  // stage times and histograms on the board
  } profile;
};

// Bad input: what() says file and line (or "override"), the key, the value, what was expected, and
// the nearest known key. Nothing has been started.
class ConfigError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

// A resolved configuration and where each value came from ("default", "cartpole.yaml:12",
// "override"), by dotted key.
struct ResolvedConfig {
  Config config;
  std::map<std::string, std::string> sources;
};

// Reads a YAML file, then applies "dotted.key=value" overrides in order (a repeated one: the last).
// Refuses unknown and duplicate keys, wrong types, NaN and overflowing numbers, values out of range
// and contradictions between options. Throws ConfigError.
ResolvedConfig load_config(const std::string& path, const std::vector<std::string>& overrides);
// The same from YAML text; `origin` stands for the file in messages.
ResolvedConfig parse_config(const std::string& yaml, const std::string& origin,
                            const std::vector<std::string>& overrides);

// The defaults with "dotted.key=value". Throws ConfigError when that is wrong by itself; contradictions
// with other options are not looked for.
Config check_override(const std::string& override);

// Every option with its value, as YAML that parse_config reads back to an equal Config.
// with_help: each option's one-line help as a comment above it.
std::string dump_config(const Config& config, bool with_help = false);

// JSON Schema (draft 2020-12) of a config file, with defaults, ranges and help.
std::string config_schema();

// For the CLI and Python: every option in order.
struct OptionInfo {
  std::string key;       // dotted
  std::string type;      // "integer" | "number" | "string" | "boolean" | "integers" | "object"
  std::string value;     // of the given config, as dumped; an object: as JSON
  std::string expected;  // "an integer >= 1", "one of: appo, impala, ppo", …
  std::string help;
};
std::vector<OptionInfo> config_options(const Config& config);

}  // namespace gristmill
