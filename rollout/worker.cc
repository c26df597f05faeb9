#include "rollout/worker.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <exception>
#include <sstream>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/box.h"
#include "core/run_board.h"
#include "core/stage_clock.h"
#include "core/trajectory_queue.h"
#include "rollout/actor.h"
#include "rollout/finite.h"
#include "rollout/parent_death.h"
#include "rollout/policy.h"
#include "rollout/random.h"
#include "rollout/run_log.h"
#include "rollout/trajectory_buffer.h"

namespace gristmill {
namespace {

using std::chrono::milliseconds;

// Waits are cut into slices so that a worker beats its heart and sees a stop while it waits.
constexpr milliseconds kWaitSlice{100};
constexpr milliseconds kAttachTimeout{10'000};

// An error that a restart would only repeat: it ends the run.
class FatalError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class RolloutWorker {
 public:
  RolloutWorker(const Config& config, int index, RunBoard& board, VectorEnvironment& environments,
                std::uint64_t seed)
      : config_(config),
        index_(index),
        board_(board),
        row_(board.row(index)),
        environments_(environments),
        count_(environments.size()),
        unroll_(config.workers.unroll),
        synchronous_(config.learner.algorithm == "ppo"),
        at_random_(config.learner.algorithm == "drain"),
        queue_(TrajectoryQueue::attach(queue_name(board.name()), Deadline::in(kAttachTimeout))),
        box_(Box::attach(box_name(board.name()), Deadline::in(kAttachTimeout))),
        policy_(config.policy, environments.spec()),
        actor_(policy_, stream_seed(seed, 1)),
        random_(stream_seed(seed, 2)),
        buffer_(environments.spec(), count_, unroll_),
        final_observations_(environments.spec().observation_bytes() * static_cast<std::size_t>(count_)),
        final_values_(static_cast<std::size_t>(count_)),
        episode_returns_(static_cast<std::size_t>(count_)),
        episode_lengths_(static_cast<std::size_t>(count_)),
        clock_(board, row_, config.profile.counters) {
    if (queue_->spec() != buffer_.specs()) {
      throw std::runtime_error("the trajectory queue's fields are not this environment's");
    }
    for (const FieldSpec& field : buffer_.specs()) trajectory_bytes_ += field.bytes();
    for (std::int64_t i = 0; i < count_; ++i) {
      store<std::int32_t>(buffer_.at(kWorker, 0), i, index);
      store<std::int32_t>(buffer_.at(kSlot, 0), i, static_cast<std::int32_t>(i));
    }
  }

  // The main loop. Returns when the run ends.
  void run() {
    environments_.reset(buffer_.at(kObservations, 0));
    check_finite(buffer_.at(kObservations, 0), "observation");
    clock_.charge(Measure::kEnvironment);
    if (!wait_for_parameters(1)) return;
    act(0);
    while (true) {
      begin_trajectories();
      for (std::int64_t t = 0; t < unroll_; ++t) {
        step(t);
        // The actions at step T are the next trajectories' first: their values are the bootstrap.
        refresh_parameters();
        act(t + 1);
        beat();
        if (board_.stop_requested()) return;
      }
      if (!put()) return;
      buffer_.carry_observations();
      clock_.charge(Measure::kAssemble);
      if (synchronous_) {
        // A batch is collected under one version, whole: the next one waits for its successor.
        if (!wait_for_parameters(version_ + 1)) return;
        act(0);
      } else {
        carry_actions();
      }
    }
  }

 private:
  template <class T>
  static void store(Rows rows, std::int64_t i, T value) {
    *reinterpret_cast<T*>(rows.row(i)) = value;
  }
  template <class T>
  static T load(Rows rows, std::int64_t i) {
    return *reinterpret_cast<const T*>(rows.row(i));
  }

  void begin_trajectories() {
    buffer_.clear_ends();
    for (std::int64_t i = 0; i < count_; ++i) {
      store<std::int64_t>(buffer_.at(kVersion, 0), i, static_cast<std::int64_t>(acted_version_));
    }
    clock_.charge(Measure::kAssemble);
  }

  // The clock has just been read where time is charged.
  void beat() { clock_.on() ? row_.beat(clock_.last_ns()) : row_.beat(); }

  // Environments from step t to t + 1, with the actions that act(t) left.
  void step(std::int64_t t) {
    if (frames_ == 0) row_.set(Counter::kFirstStepNs, StageClock::now_ns());
    const Rows finals{final_observations_.data(),
                      static_cast<std::ptrdiff_t>(environments_.spec().observation_bytes())};
    const StepRows out{.observations = buffer_.at(kObservations, t + 1),
                       .rewards = buffer_.at(kRewards, t),
                       .terminated = buffer_.at(kTerminated, t),
                       .truncated = buffer_.at(kTruncated, t),
                       .final_observations = finals};
    environments_.step(actions_at(t), out);
    check_finite(out.observations, "observation");
    bool any_truncated = false;
    for (std::int64_t i = 0; i < count_; ++i) {
      const float reward = load<float>(out.rewards, i);
      if (!std::isfinite(reward)) not_finite("reward", i, reward);
      auto& episode_return = episode_returns_[static_cast<std::size_t>(i)];
      auto& episode_length = episode_lengths_[static_cast<std::size_t>(i)];
      episode_return += reward;
      ++episode_length;
      const bool truncated = load<bool>(out.truncated, i);
      if (!truncated && !load<bool>(out.terminated, i)) continue;
      any_truncated |= truncated;
      store(buffer_.at(kEpisodeReturns, t), i, static_cast<float>(episode_return));
      store(buffer_.at(kEpisodeLengths, t), i, episode_length);
      episode_return = 0;
      episode_length = 0;
      row_.add(Counter::kEpisodes, 1);
    }
    frames_ += static_cast<std::uint64_t>(count_);
    row_.set(Counter::kFrames, frames_);
    clock_.charge(Measure::kEnvironment);
    if (any_truncated) value_final_observations(finals, t);
  }

  void value_final_observations(Rows finals, std::int64_t t) {
    if (at_random_) return;
    // All rows at once: rows without an end hold stale observations, whose values are not used.
    actor_.values(finals, count_, {reinterpret_cast<std::byte*>(final_values_.data()), sizeof(float)});
    for (std::int64_t i = 0; i < count_; ++i) {
      if (load<bool>(buffer_.at(kTruncated, t), i)) {
        store(buffer_.at(kFinalValues, t), i, final_values_[static_cast<std::size_t>(i)]);
      }
    }
    clock_.charge(Measure::kInference);
  }

  // Actions and log-probabilities at step T belong to the next trajectories: a spare row each.
  Rows actions_at(std::int64_t t) {
    return t < unroll_ ? buffer_.at(kActions, t) : spare(next_actions_, action_bytes());
  }
  Rows log_probs_at(std::int64_t t) {
    return t < unroll_ ? buffer_.at(kLogProbs, t) : spare(next_log_probs_, sizeof(float));
  }
  Rows spare(std::vector<std::byte>& rows, std::size_t bytes) const {
    rows.resize(bytes * static_cast<std::size_t>(count_));
    return {rows.data(), static_cast<std::ptrdiff_t>(bytes)};
  }
  std::size_t action_bytes() const { return environments_.spec().action_bytes(); }

  void act(std::int64_t t) {
    const ActRows out{
        .actions = actions_at(t), .log_probs = log_probs_at(t), .values = buffer_.at(kValues, t)};
    at_random_ ? act_at_random(out) : actor_.act(buffer_.at(kObservations, t), count_, out);
    clock_.charge(Measure::kInference);
    if (acted_version_ == version_) return;
    acted_version_ = version_;
    const std::uint64_t published = board_.published_at(version_);
    if (clock_.on() && published > 0 && clock_.last_ns() > published) {
      row_.record(Measure::kParameterLatency, clock_.last_ns() - published);
    }
  }

  void act_at_random(const ActRows& out) {
    const EnvironmentSpec& spec = environments_.spec();
    for (std::int64_t i = 0; i < count_; ++i) {
      store<float>(out.log_probs, i, 0);
      store<float>(out.values, i, 0);
      if (spec.discrete()) {
        store(out.actions, i, static_cast<std::int32_t>(random_.below(spec.action_count)));
        continue;
      }
      auto* action = reinterpret_cast<float*>(out.actions.row(i));
      for (std::int64_t a = 0; a < spec.action_dims; ++a) action[a] = random_.normal();
    }
  }

  void carry_actions() {
    for (std::int64_t i = 0; i < count_; ++i) {
      std::memcpy(actions_at(0).row(i), actions_at(unroll_).row(i), action_bytes());
      store(log_probs_at(0), i, load<float>(log_probs_at(unroll_), i));
      store(buffer_.at(kValues, 0), i, load<float>(buffer_.at(kValues, unroll_), i));
    }
  }

  bool put() {
    std::int64_t done = 0;
    std::chrono::nanoseconds waited{};
    std::uint64_t run = 0;  // the trace follows the last run of places; a put is seldom in parts
    std::vector<const std::byte*> fields(buffer_.fields().begin(), buffer_.fields().end());
    while (done < count_) {
      const auto result = queue_->put_many(fields, count_ - done, Deadline::in(kWaitSlice));
      waited += result.waited;
      row_.add(Counter::kTrajectories, static_cast<std::uint64_t>(result.put));
      if (result.run_count > 0)
        run = trace_run(result.run_begin, static_cast<std::uint64_t>(result.run_count));
      done += result.put;
      for (std::size_t f = 0; f < fields.size(); ++f) {
        fields[f] += buffer_.specs()[f].bytes() * static_cast<std::size_t>(result.put);
      }
      row_.beat();
      if (board_.stop_requested() || result.outcome == TrajectoryQueue::Outcome::kClosed) return false;
      if (result.outcome == TrajectoryQueue::Outcome::kBroken) {
        throw std::runtime_error("the trajectory queue's shared memory is damaged");
      }
    }
    row_.set(Counter::kLastStepNs, StageClock::now_ns());
    row_.add(Counter::kCopiedBytes, trajectory_bytes_ * static_cast<std::uint64_t>(count_));
    clock_.charge(Measure::kCopy, run, Measure::kSpaceWait, static_cast<std::uint64_t>(waited.count()));
    row_.set(Counter::kQueueSize, static_cast<std::uint64_t>(queue_->size()));
    row_.set(Counter::kQueueSizeNs, clock_.on() ? clock_.last_ns() : StageClock::now_ns());
    return true;
  }

  // Acts on the newest parameters, in place.
  void refresh_parameters() {
    if (synchronous_ || box_->version() == version_) return;
    pin_newest();
    clock_.charge(Measure::kParameters, version_);
  }

  void pin_newest() {
    pin_ = box_->pin();  // before the old pin goes, if at all: it is replaced by assignment
    version_ = pin_.version();
    auto* parameters = reinterpret_cast<float*>(const_cast<std::byte*>(pin_.field(0)));  // only read
    policy_.bind(torch::from_blob(parameters, {policy_.parameter_count()}));
    row_.set(Counter::kVersion, version_);
  }

  // False: the run ended meanwhile.
  bool wait_for_parameters(std::uint64_t version) {
    while (box_->version() < version) {
      if (board_.stop_requested()) return false;
      row_.beat();
      box_->watch(version - 1, Deadline::in(kWaitSlice));
    }
    pin_newest();
    clock_.charge(Measure::kParameters, version_);
    return true;
  }

  void check_finite(Rows observations, const char* what) {
    const EnvironmentSpec& spec = environments_.spec();
    if (spec.observation_dtype != DType::kFloat32) return;
    const std::int64_t elements = spec.observation_elements();
    for (std::int64_t i = 0; i < count_; ++i) {
      const auto* values = reinterpret_cast<const float*>(observations.row(i));
      const std::int64_t bad = first_not_finite({values, static_cast<std::size_t>(elements)});
      if (bad >= 0) not_finite(std::string(what) + "[" + std::to_string(bad) + "]", i, values[bad]);
    }
  }

  [[noreturn]] void not_finite(const std::string& field, std::int64_t slot, float value) {
    std::ostringstream text;
    text << field << " is " << value << " in environment " << slot << " of worker " << index_ << ", step "
         << episode_lengths_[static_cast<std::size_t>(slot)] + 1 << " of its episode (" << config_.env.id
         << "). Nothing was learned from it; mend the environment, or clip what it returns";
    throw FatalError(text.str());
  }

  const Config& config_;
  const int index_;
  RunBoard& board_;
  RunBoard::Row row_;
  VectorEnvironment& environments_;
  const std::int64_t count_;
  const std::int64_t unroll_;
  const bool synchronous_;
  const bool at_random_;  // the pipeline is measured: no network
  std::unique_ptr<TrajectoryQueue> queue_;
  std::unique_ptr<Box> box_;
  Policy policy_;
  Actor actor_;
  Random random_;
  TrajectoryBuffer buffer_;
  Box::Pin pin_;
  std::uint64_t version_ = 0;        // pinned
  std::uint64_t acted_version_ = 0;  // of the last act()
  std::uint64_t frames_ = 0;
  std::uint64_t trajectory_bytes_ = 0;
  std::vector<std::byte> final_observations_;
  std::vector<float> final_values_;
  std::vector<double> episode_returns_;
  std::vector<std::int32_t> episode_lengths_;
  std::vector<std::byte> next_actions_;
  std::vector<std::byte> next_log_probs_;
  StageClock clock_;
};

// What a factory says with std::invalid_argument (no such environment, an unsupported space) would be
// said again by every restarted worker.
std::unique_ptr<VectorEnvironment> make_or_give_up(const EnvironmentFactory& make_environments,
                                                   const Config& config, std::uint64_t seed) {
  try {
    return make_environments(config, seed, 0);
  } catch (const std::invalid_argument& error) {
    throw FatalError(error.what());
  }
}

void work(RunBoard& board, int index, const EnvironmentFactory& make_environments) {
  RunBoard::Row row = board.row(index);
  const Config config = parse_config(board.config(), "the run's configuration", {}).config;
  at::set_num_threads(1);
  // A restarted worker plays other episodes than the one that died.
  const std::uint64_t seed = stream_seed(
      stream_seed(static_cast<std::uint64_t>(config.seed), static_cast<std::uint64_t>(row.incarnation())),
      static_cast<std::uint64_t>(index) + 1);
  WorkerLog log(board.name(), index, config.log.workers_level);
  const auto environments = make_or_give_up(make_environments, config, seed);
  row.set_description(environments->spec().to_json());
  row.set_phase(Phase::kDescribed);
  while (!board.await_ready(Deadline::in(kWaitSlice))) {
    if (board.stop_requested()) return;
    row.beat();
  }
  RolloutWorker worker(config, index, board, *environments, seed);
  row.set_phase(Phase::kRunning);
  log.say(LogLevel::kInfo, "steps " + std::to_string(config.workers.envs_per_worker) + " environments of " +
                               config.env.id + " with seed " + std::to_string(seed));
  worker.run();
  log.say(LogLevel::kInfo, "ends as told, after " + std::to_string(row.get(Counter::kFrames)) + " frames");
}

}  // namespace

std::string queue_name(const std::string& board) { return board.substr(0, board.rfind('.')) + ".queue"; }
std::string box_name(const std::string& board) { return board.substr(0, board.rfind('.')) + ".box"; }

int run_worker(const std::string& board_name, int index, const EnvironmentFactory& make_environments) {
  const auto board = RunBoard::attach(board_name, Deadline::in(kAttachTimeout));
  die_with_parent(static_cast<pid_t>(board->owner().pid));
  RunBoard::Row row = board->row(index);
  row.enter();
  const auto failed = [&](Phase phase, const std::string& what) {
    row.set_error(what);
    row.set_phase(phase);
    return 1;
  };
  try {
    work(*board, index, make_environments);
  } catch (const FatalError& error) {
    return failed(Phase::kFatal, error.what());
  } catch (const std::exception& error) {
    if (board->stop_requested()) return 0;  // the run's shared memory may be gone already
    return failed(Phase::kFailed, error.what());
  }
  row.set_phase(Phase::kStopped);
  return 0;
}

}  // namespace gristmill
