#pragma once

// Environments, one at a time and many stepped as one. No torch here.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/field_spec.h"

namespace gristmill {

// What a policy needs to know of an environment.
struct EnvironmentSpec {
  DType observation_dtype = DType::kFloat32;  // kFloat32 or kUInt8
  std::vector<std::int64_t> observation_shape;

  // Discrete(action_count) when action_count > 0: an action is one int32 in [0, action_count).
  // Otherwise Box: an action is action_dims float32, clipped to [low, high] by the environment.
  std::int64_t action_count = 0;
  std::int64_t action_dims = 0;
  std::vector<float> action_low, action_high;  // action_dims each

  bool discrete() const { return action_count > 0; }
  std::int64_t observation_elements() const;
  std::size_t observation_bytes() const;
  std::size_t action_bytes() const;  // 4 or 4 * action_dims
  bool operator==(const EnvironmentSpec&) const = default;

  // For RunBoard descriptions. from_json throws std::invalid_argument.
  std::string to_json() const;
  static EnvironmentSpec from_json(const std::string& json);
};

// One step's outcome. truncated: cut by a time limit, the state is not terminal.
struct StepResult {
  float reward = 0;
  bool terminated = false;
  bool truncated = false;
};

// One environment. A class E is vectorised by Vectorised<E> (rollout/vectorised.h), without virtual
// calls; it needs: static EnvironmentSpec spec(); explicit E(std::uint64_t seed);
// void reset(float* observation); StepResult step(Action action, float* observation), where Action
// is std::int32_t (Discrete) or const float* (Box). See rollout/template_environment.h.

// Rows of one array, one per environment, `stride` bytes apart: they may lie right inside a
// trajectory buffer, so that nothing is assembled later.
struct Rows {
  std::byte* data = nullptr;
  std::ptrdiff_t stride = 0;
  std::byte* row(std::int64_t i) const { return data + i * stride; }
};

// Where a vector step writes. Row i belongs to environment i.
struct StepRows {
  Rows observations;        // [E, observation]: after the step; of the next episode's start at an end
  Rows rewards;             // [E] float32
  Rows terminated;          // [E] bool (one byte)
  Rows truncated;           // [E] bool
  Rows final_observations;  // [E, observation]: written only where an episode ended in this step
};

// Many environments stepped as one. The next episode begins in the same step as an episode's end.
// Used by one thread.
class VectorEnvironment {
 public:
  virtual ~VectorEnvironment() = default;
  virtual const EnvironmentSpec& spec() const = 0;
  virtual std::int64_t size() const = 0;
  // Begins an episode in each.
  virtual void reset(Rows observations) = 0;
  // actions: [E] int32 or [E, action_dims] float32, `stride` bytes apart. Native environments do
  // not throw; others throw std::runtime_error with the environment's index and traceback.
  virtual void step(Rows actions, const StepRows& out) = 0;
};

// Makes `count` copies of the native environment `id` (cartpole, template, …, or plugin:path.so:Name, see
// rollout/plugin.h), copy i seeded from (seed, first_index + i). kwargs: a JSON object, for plugins and
// "synthetic" (rollout/synthetic.h). Throws std::invalid_argument naming the known ids, or what is wrong with
// kwargs.
std::unique_ptr<VectorEnvironment> make_native_environments(const std::string& id, std::int64_t count,
                                                            std::uint64_t seed, std::int64_t first_index,
                                                            const std::string& kwargs = "{}");
// Whether gristmill-worker makes it. A plugin is not looked for.
bool is_native_environment(const std::string& id);
std::vector<std::string> native_environment_ids();

// SplitMix64 of a run's seed and a stream's number: independent streams from one seed.
std::uint64_t stream_seed(std::uint64_t seed, std::uint64_t stream);

}  // namespace gristmill
