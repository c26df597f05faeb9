#pragma once

// Checkpoints of a run: <run_dir>/checkpoints/<sequence>-frames-<frames>/ with
//   model.safetensors      parameters, by their names in the policy's layout
//   optimizer.safetensors  Adam's moments, "first_moment.<name>" and "second_moment.<name>"
//   state.json             counters, random states, hashes of the other two and of itself
// One process writes a run's checkpoints at a time (the learner); anybody may read them meanwhile.
// No torch.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/field_spec.h"

namespace gristmill {

// Everything that makes a resumed run continue as if it had not stopped.
struct CheckpointState {
  FieldSpecs layout;                                           // of the parameters; all float32
  std::vector<float> parameters, first_moment, second_moment;  // flat, in layout order

  std::int64_t optimizer_steps = 0;
  std::int64_t frames = 0;                            // environment steps learned from
  std::int64_t version = 0;                           // of the parameters
  std::int64_t updates = 0;                           // batches learned from
  std::int64_t episodes = 0;                          // finished
  double progress = 0;                                // of the schedules, in [0, 1]
  double elapsed_s = 0;                               // of training, over all launches
  std::vector<float> recent_returns, recent_lengths;  // of the last episodes, oldest first
  std::map<std::string, std::int64_t> counters;       // any others, by name
  std::map<std::string, std::string> random_states;   // generators by name, as text
  std::string config_hash;                            // of the configuration it was made under
  std::string environment;  // EnvironmentSpec::to_json(), to evaluate without a worker

  bool operator==(const CheckpointState&) const = default;
};

// A checkpoint that cannot be written or must not be used. what(): the path, the reason, and what
// to do.
class CheckpointError : public std::runtime_error {
 public:
  explicit CheckpointError(const std::string& what, std::filesystem::path previous = {})
      : std::runtime_error(what), previous_(std::move(previous)) {}
  // The newest whole checkpoint before the damaged one; empty when there is none.
  const std::filesystem::path& previous() const { return previous_; }

 private:
  std::filesystem::path previous_;
};

// Writes a checkpoint aside, fsyncs it, gives it its name in one rename, and removes all but the
// newest `keep` (>= 1) as well as what a crash left behind. A crash at any point leaves the earlier
// checkpoints whole and the new one either whole or absent. Returns its directory. Blocks for the
// disk. Throws CheckpointError with the earlier checkpoints untouched: no space, not writable, or a
// state that is not sane (sizes that do not fit the layout, a NaN or infinity in it: named).
std::filesystem::path save_checkpoint(const std::filesystem::path& run_dir, const CheckpointState& state,
                                      std::int64_t keep);

// Throws CheckpointError for any damage: a file missing, cut short, or with one byte changed; files
// of two different checkpoints; values that are not finite.
CheckpointState load_checkpoint(const std::filesystem::path& directory);

// An entry of `counters` or `random_states`. Throw CheckpointError when a checkpoint, another program's, has
// none of that name.
std::int64_t counter_of(const CheckpointState& state, const std::string& name);
const std::string& random_state_of(const CheckpointState& state, const std::string& name);

// Every checkpoint of a run, oldest first, unverified.
std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& run_dir);

// The newest one, verified; nullopt when the run has none. Throws CheckpointError when the newest is
// damaged: the message names it and the reason and offers the newest whole one before it.
std::optional<std::filesystem::path> latest_checkpoint(const std::filesystem::path& run_dir);

}  // namespace gristmill
