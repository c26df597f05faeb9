#include "learner/train.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <time.h>
#include <unistd.h>

#include "core/box.h"
#include "core/run_board.h"
#include "core/segment.h"
#include "core/stage_clock.h"
#include "core/trajectory_queue.h"
#include "learner/batch.h"
#include "learner/checkpoint.h"
#include "learner/episodes.h"
#include "learner/learner.h"
#include "learner/metrics.h"
#include "learner/run_timers.h"
#include "learner/stall_account.h"
#include "rollout/environment.h"
#include "rollout/trajectory.h"
#include "rollout/worker.h"

namespace gristmill {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kPollSlice{50};
constexpr milliseconds kStopGrace{1000};

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

using RandomWords = std::array<std::uint64_t, 4>;

std::string random_text(const RandomWords& words) {
  std::ostringstream text;
  for (const std::uint64_t word : words) text << word << ' ';
  return text.str();
}

RandomWords random_words(const std::string& text) {
  RandomWords words{};
  std::istringstream stream(text);
  for (std::uint64_t& word : words) stream >> word;
  if (!stream) throw std::runtime_error("the checkpoint's random state is not four numbers: '" + text + "'");
  return words;
}

class Training {
 public:
  Training(Launch& launch, const TrainHooks& hooks)
      : config_(launch.config()),
        launch_(launch),
        board_(launch.board()),
        pool_(launch.pool()),
        hooks_(hooks),
        row_(board_.learner()),
        clock_(board_, row_, config_.profile.counters) {
    at::set_num_threads(static_cast<int>(config_.learner.threads));
  }
  ~Training() { pool_.stop(kStopGrace); }

  // The main loop: take a batch, learn from it, publish, look after everything else.
  TrainResult run(const std::string& resume_from) {
    try {
      if (!prepare(resume_from)) return interrupted_at_start();
    } catch (...) {
      launch_.abandon();
      throw;
    }
    row_.prepare(static_cast<int>(launch_.earlier_launches()));
    row_.enter();
    publish();
    board_.announce_ready();
    row_.set_phase(Phase::kRunning);
    clock_.skip();
    while (!over()) {
      TrajectoryQueue::Batch batch = next_batch();
      if (batch.size() > 0) {
        const BatchView all = view_of(*queue_, batch);
        account(all);
        const BatchView rows = usable_rows(all);
        clock_.charge(Measure::kBatchView,
                      trace_run(batch.position(), static_cast<std::uint64_t>(all.trajectories)));
        const bool learned = rows.trajectories > 0;  // else all were too old: nothing new to publish
        if (learned) learn(rows);
        batch.release();
        tell_board();
        clock_.charge(Measure::kBatchView);
        if (learned) {
          publish();
          clock_.charge(Measure::kPublish, box_->version());
        }
      }
      look_after_the_run();
      clock_.charge(Measure::kLog);
      row_.beat();
    }
    return finish();
  }

 private:
  // Everything that the environments' shape decides, as soon as a worker has told it. False:
  // interrupted before that.
  bool prepare(const std::string& resume_from) {
    environment_json_ = await_environment();
    if (interrupted_) return false;
    const EnvironmentSpec environment = EnvironmentSpec::from_json(environment_json_);
    queue_ = TrajectoryQueue::create(queue_name(board_.name()),
                                     trajectory_fields(environment, config_.workers.unroll),
                                     config_.queue.capacity);
    pool_.watch_queue(queue_.get());
    for (const FieldSpec& field : queue_->spec()) trajectory_bytes_ += field.bytes();
    learner_ = std::make_unique<Learner>(config_, environment);
    learner_->charge_to(&clock_);
    box_ = Box::create(
        box_name(board_.name()),
        {{.name = "parameters", .dtype = DType::kFloat32, .shape = {learner_->policy().parameter_count()}}});
    if (!resume_from.empty()) restore(load_checkpoint(resume_from));
    timers_.start(config_.log.interval_s, config_.checkpoint.interval_s, Clock::now());
    return true;
  }

  std::string await_environment() {
    std::uint32_t seen = board_.changes();
    while (true) {
      for (int i = 0; i < board_.rows(); ++i) {
        const RunBoard::Row row = board_.row(i);
        const Phase phase = row.phase();
        if (phase == Phase::kDescribed || phase == Phase::kRunning) return row.description();
      }
      look_after_workers();
      if (timers_.take(Clock::now()).stalled) say_stalled("no worker has made its environments");
      if (!result_.error.empty()) throw std::runtime_error(result_.error);
      if (interrupted_) return {};
      seen = board_.await_change(seen, Deadline::in(kPollSlice));
    }
  }

  TrajectoryQueue::Batch next_batch() {
    const auto begin = Clock::now();
    auto got = queue_->get_many(config_.learner.batch_trajectories, Deadline::in(kPollSlice));
    interval_.add_wait(Clock::now() - begin);
    clock_.charge(Measure::kBatchWait);
    if (got.outcome == TrajectoryQueue::Outcome::kBroken) {
      fail("the trajectory queue's shared memory is damaged");
    }
    return std::move(got.batch);
  }

  // The batch in place, or a copy without what is too old and, in synchronous runs, in fixed order.
  BatchView usable_rows(const BatchView& all) {
    const auto version = static_cast<std::int64_t>(box_->version());
    const bool synchronous = config_.learner.algorithm == "ppo";
    const auto rows = choose_rows(all, version - config_.learner.max_policy_lag, synchronous);
    for (const std::int64_t row : rows) {
      const std::int64_t lag = version - all.field<std::int64_t>(kVersion)[static_cast<std::size_t>(row)];
      interval_.add_lag(lag);
      lag_.add(lag);
      row_.record(Measure::kPolicyLag, static_cast<std::uint64_t>(std::max<std::int64_t>(lag, 0)));
    }
    result_.dropped_stale += all.trajectories - static_cast<std::int64_t>(rows.size());
    if (is_identity(rows, all.trajectories)) return all;
    row_.add(Counter::kCopiedBytes, rows.size() * trajectory_bytes_);
    gathered_.gather(all, rows);
    return gathered_.view();
  }

  void account(const BatchView& all) {
    timers_.pushed(Clock::now());
    const std::int64_t frames = all.trajectories * all.unroll;
    frames_ += frames;
    launch_frames_ += frames;
    interval_.add_frames(frames);
    row_.record(Measure::kQueueFill, static_cast<std::uint64_t>(queue_->size()));
    row_.add(Counter::kFrames, static_cast<std::uint64_t>(frames));
    row_.add(Counter::kTrajectories, static_cast<std::uint64_t>(all.trajectories));
    episodes_.add(all);
    note_steps();
    note_solved();
  }

  void note_solved() {
    if (result_.solved || !config_.train.has_stop_at_return() || !episodes_.window_full() ||
        episodes_.mean_return() < config_.train.stop_at_return) {
      return;
    }
    result_.solved = true;
    result_.solved_at_s = process_age_s();
  }

  // After each batch: what watchers of the board see of the run as a whole.
  void tell_board() {
    row_.set(Counter::kUpdates, static_cast<std::uint64_t>(updates_));
    row_.set(Counter::kEpisodes, static_cast<std::uint64_t>(episodes_.finished()));
    row_.set(Counter::kDroppedStale, static_cast<std::uint64_t>(result_.dropped_stale));
    row_.set(Counter::kQueueSize, static_cast<std::uint64_t>(queue_->size()));
    row_.set(Counter::kQueueSizeNs, StageClock::now_ns());
    if (episodes_.finished() > 0) {
      row_.set(Counter::kMeanReturn, std::bit_cast<std::uint64_t>(episodes_.mean_return()));
    }
  }

  void learn(const BatchView& rows) {
    if (config_.learner.algorithm == "drain") {
      ++updates_;
      return;
    }
    const UpdateStats stats = learner_->update(rows, progress());
    ++updates_;
    if (!stats.not_finite.empty()) {
      parameters_are_good_ = false;
      fail("learning went wrong: " + stats.not_finite + " (update " + std::to_string(updates_) +
           "). No checkpoint was written of it; try a smaller learner.learning_rate, or "
           "learner.max_grad_norm");
      return;
    }
    interval_.add_update(
        {.loss = stats.loss, .grad_norm = stats.grad_norm, .learning_rate = stats.learning_rate});
  }

  // A box whose slots are all pinned skips a version: workers go on with the one before.
  void publish() {
    if (!result_.error.empty()) return;
    const auto* parameters = reinterpret_cast<const std::byte*>(learner_->parameters().data());
    board_.note_publication(box_->version() + 1, StageClock::now_ns());
    const auto published = box_->publish({&parameters, 1}, Deadline::in(kStopGrace));
    if (published.outcome == Box::PublishOutcome::kBroken) {
      fail("the parameter box's shared memory is damaged");
    }
    row_.set(Counter::kVersion, box_->version());
  }

  void look_after_the_run() {
    look_after_workers();
    note_pushes();
    const RunTimers::Due due = timers_.take(Clock::now());
    if (due.stalled) say_stalled("no worker has pushed a trajectory");
    if (due.log) log();
    if (due.checkpoint) checkpoint();
  }

  // Trajectories may come long before there is a batch of them.
  void note_pushes() {
    for (int i = 0; i < board_.rows(); ++i) {
      const std::chrono::nanoseconds last(board_.row(i).get(Counter::kLastStepNs));
      timers_.pushed(Clock::time_point(last));
    }
  }

  void say_stalled(const std::string& what) const {
    say(describe_stall(what, timers_.silent_s(Clock::now()), config_, pool_, queue_.get()));
  }

  void look_after_workers() {
    launch_.log().take(hooks_.on_log);
    for (const WorkerEvent& event : pool_.take_events()) {
      const bool started = event.kind == WorkerEvent::Kind::kStarted;
      launch_.log().note(started ? LogLevel::kInfo : LogLevel::kWarning, event.message);
      if (hooks_.on_event) hooks_.on_event(event);
    }
    if (const std::string failure = pool_.failure(); !failure.empty()) fail(failure);
    if (hooks_.should_stop && hooks_.should_stop()) interrupted_ = true;
    // Somebody asked for it on the board: the workers end, and nothing more will come.
    if (board_.stop_requested() && !stopping_) interrupted_ = true;
  }

  bool over() const {
    return interrupted_ || result_.solved || !result_.error.empty() || frames_ >= config_.train.total_frames;
  }

  TrainResult interrupted_at_start() {
    result_.end = TrainResult::End::kInterrupted;
    result_.wall_s = seconds_since(begin_);
    result_.run_dir = launch_.run_dir();
    return std::move(result_);
  }

  TrainResult finish() {
    queue_->close();
    row_.set_phase(result_.error.empty() ? Phase::kStopped : Phase::kFailed);
    stopping_ = true;
    pool_.stop(kStopGrace);
    look_after_workers();  // what they met at the end counts too
    launch_.log().finish(hooks_.on_log);
    if (parameters_are_good_) checkpoint();
    log();
    using End = TrainResult::End;
    result_.end = !result_.error.empty() ? End::kFailed
                  : interrupted_         ? End::kInterrupted
                  : result_.solved       ? End::kSolved
                                         : End::kFrames;
    result_.wall_s = seconds_since(begin_);
    result_.frames = frames_;
    if (last_step_ > first_step_) {
      result_.fps =
          static_cast<double>(launch_frames_) / (static_cast<double>(last_step_ - first_step_) * 1e-9);
    }
    result_.mean_return = episodes_.mean_return();
    result_.mean_length = episodes_.mean_length();
    result_.episodes = episodes_.finished();
    result_.policy_lag_p50 = lag_.quantile(0.5);
    result_.policy_lag_max = lag_.max();
    result_.restarts = pool_.restarts();
    result_.version = version();
    const auto parameters = std::as_bytes(learner_->parameters());
    std::array<char, 17> hex{};
    std::snprintf(hex.data(), hex.size(), "%016llx",
                  static_cast<unsigned long long>(hash_bytes(parameters.data(), parameters.size())));
    result_.parameter_hash = hex.data();
    result_.run_dir = launch_.run_dir();
    return std::move(result_);
  }

  void log() {
    if (!hooks_.on_metrics) return;
    Metrics totals = worker_shares(board_);
    totals["time/total_timesteps"] = static_cast<double>(frames_);
    totals["time/time_elapsed"] = earlier_elapsed_s_ + seconds_since(begin_);
    totals["time/episodes"] = static_cast<double>(episodes_.finished());
    totals["train/n_updates"] = static_cast<double>(updates_);
    totals["train/version"] = static_cast<double>(version());
    totals["train/dropped_stale"] = static_cast<double>(result_.dropped_stale);
    totals["queue/fill"] = static_cast<double>(queue_->size()) / static_cast<double>(queue_->capacity());
    totals["workers/alive"] = static_cast<double>(pool_.alive());
    totals["workers/restarts"] = static_cast<double>(pool_.restarts());
    totals["workers/log_dropped"] = static_cast<double>(launch_.log().dropped());
    hooks_.on_metrics(interval_.finish(episodes_, totals));
  }

  // A disk that is full costs a checkpoint, not the run; the last one before the end does.
  void checkpoint() {
    try {
      result_.checkpoint = save_checkpoint(launch_.run_dir(), state(), config_.checkpoint.keep).string();
    } catch (const CheckpointError& error) {
      say(error.what());
      if (over()) fail(error.what());
    }
  }

  CheckpointState state() const {
    const auto copy = [](std::span<const float> values) {
      return std::vector<float>(values.begin(), values.end());
    };
    CheckpointState state;
    state.layout = learner_->policy().layout();
    state.parameters = copy(learner_->parameters());
    state.first_moment = copy(learner_->optimizer().first_moment());
    state.second_moment = copy(learner_->optimizer().second_moment());
    state.optimizer_steps = learner_->optimizer().steps();
    state.frames = frames_;
    state.version = version();
    state.updates = updates_;
    state.episodes = episodes_.finished();
    state.progress = progress();
    state.elapsed_s = earlier_elapsed_s_ + seconds_since(begin_);
    state.recent_returns.assign(episodes_.returns().begin(), episodes_.returns().end());
    state.recent_lengths.assign(episodes_.lengths().begin(), episodes_.lengths().end());
    state.counters = {{"launches", launch_.earlier_launches() + 1}, {"dropped_stale", result_.dropped_stale}};
    state.random_states = {{"minibatches", random_text(learner_->random_state())}};
    state.environment = environment_json_;
    return state;
  }

  void restore(const CheckpointState& state) {
    if (state.layout != learner_->policy().layout()) {
      throw std::runtime_error(
          "the checkpoint's policy is not this configuration's: their parameters differ");
    }
    learner_->restore(state.parameters, state.first_moment, state.second_moment, state.optimizer_steps);
    learner_->restore_random_state(random_words(random_state_of(state, "minibatches")));
    episodes_.restore(state.episodes, {state.recent_returns.begin(), state.recent_returns.end()},
                      {state.recent_lengths.begin(), state.recent_lengths.end()});
    frames_ = state.frames;
    updates_ = state.updates;
    earlier_version_ = state.version;
    earlier_elapsed_s_ = state.elapsed_s;
    result_.dropped_stale = counter_of(state, "dropped_stale");
    note_solved();
  }

  // First and last environment step of this launch, on the monotonic clock. Rows are cleared when a
  // worker restarts: extremes are kept here.
  void note_steps() {
    for (int i = 0; i < board_.rows(); ++i) {
      const RunBoard::Row row = board_.row(i);
      const std::uint64_t first = row.get(Counter::kFirstStepNs);
      if (first != 0 && (first_step_ == 0 || first < first_step_)) {
        first_step_ = first;
        const auto since =
            static_cast<double>(Clock::now().time_since_epoch().count()) - static_cast<double>(first);
        result_.launch_to_first_step_s = process_age_s() - since * 1e-9;
      }
      last_step_ = std::max(last_step_, row.get(Counter::kLastStepNs));
    }
  }

  void fail(const std::string& what) {
    if (result_.error.empty()) result_.error = what;
  }
  void say(const std::string& what) const {
    launch_.log().note(LogLevel::kInfo, what);
    if (hooks_.on_message) hooks_.on_message(what);
  }
  double progress() const {
    return static_cast<double>(frames_) / static_cast<double>(config_.train.total_frames);
  }
  std::int64_t version() const { return earlier_version_ + static_cast<std::int64_t>(box_->version()); }

  const Config& config_;
  Launch& launch_;
  RunBoard& board_;
  WorkerPool& pool_;
  const TrainHooks& hooks_;
  const Clock::time_point begin_ = Clock::now();

  std::string environment_json_;
  std::unique_ptr<TrajectoryQueue> queue_;
  std::unique_ptr<Box> box_;
  RunBoard::Row row_;  // the learner's own
  StageClock clock_;
  std::uint64_t trajectory_bytes_ = 0;
  std::unique_ptr<Learner> learner_;
  GatheredBatch gathered_;
  Episodes episodes_;
  IntervalMetrics interval_;
  LagHistogram lag_;
  TrainResult result_;

  std::int64_t frames_ = 0;         // earlier launches included
  std::int64_t launch_frames_ = 0;  // this launch's
  std::int64_t updates_ = 0;
  std::int64_t earlier_version_ = 0;
  double earlier_elapsed_s_ = 0;
  std::uint64_t first_step_ = 0, last_step_ = 0;
  RunTimers timers_{config_.workers.stall_warning_s, begin_};
  bool stopping_ = false;
  bool interrupted_ = false;
  bool parameters_are_good_ = true;
};

}  // namespace

TrainResult train(Launch& launch, const std::string& resume_from, const TrainHooks& hooks) {
  return Training(launch, hooks).run(resume_from);
}

double process_age_s() {
  std::ifstream stat("/proc/self/stat");
  std::string line;
  std::getline(stat, line);
  std::istringstream fields(line.substr(line.rfind(')') + 2));
  std::string field;
  for (int i = 3; i <= 22; ++i) fields >> field;  // field 22: start time, in ticks since boot
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  const double ticks = std::stod(field) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9 - ticks;
}

}  // namespace gristmill
