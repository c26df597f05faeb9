#pragma once

// A template to copy: a walk along a corridor, small enough to see every duty of an environment.
//
//   start: somewhere left of the middle        goal
//     [ . . s . . . . . . . . . . . . . . . . . G ]
//
// To add an environment of your own:
//   1. copy this file and template_environment.cc under its name, and rename the class;
//   2. change spec(), reset() and step();
//   3. add the .cc to rollout/CMakeLists.txt and one line to the table in
//      rollout/native_environments.cc: that gives it the id users write as `env.id`;
//   4. copy its tests in tests/rollout/template_environment_test.cc.
// Nothing else: many copies, automatic resets, final observations and buffers are Vectorised<E>'s.

#include <cstdint>

#include "rollout/environment.h"
#include "rollout/random.h"

namespace gristmill {

// Observation: float32 [2]: place in the corridor, and share of the time used, each in [0, 1].
// Action: Discrete(3): step left (0), stay (1), step right (2).
// Reward: 1 at the goal, -0.01 for every other step. Terminated at the goal, truncated after kMaxSteps.
class TemplateEnvironment {
 public:
  static constexpr int kLength = 21;  // places; the goal is the last
  static constexpr int kMaxSteps = 100;

  // Shapes, dtype and actions. Called before any instance exists, and always the same.
  // For continuous actions, leave action_count at 0 and set action_dims, action_low and action_high;
  // step() then takes const float* action, `action_dims` numbers, and clips them itself.
  static EnvironmentSpec spec();

  // Draw all randomness from a generator made of `seed`, and from nothing else: then the same seed
  // plays the same episodes, and copies with different seeds play different ones.
  explicit TemplateEnvironment(std::uint64_t seed) : random_(seed) {}

  // Begins an episode and writes its first observation. Called before the first step(), and again
  // right after a step that ended an episode: keep the generator going, do not seed it again.
  // `observation` has room for spec().observation_elements() floats and may lie in the middle of a
  // larger buffer: write exactly those, all of them, every time.
  void reset(float* observation);

  // Acts and writes the observation that follows, that of the last state too where the episode ends.
  // terminated: the task is over, there is no more reward to come. truncated: only our patience is
  // over; the state still has a value, and the learner adds it. Mixing the two up spoils learning.
  // Called often: allocate nothing, lock nothing, throw nothing. (Move the body into the header if
  // a step takes only nanoseconds, as CartPole does, so that the vector's loop can inline it.)
  StepResult step(std::int32_t action, float* observation);

 private:
  void observe(float* observation) const;

  int place_ = 0;
  int steps_ = 0;
  Random random_;
};

}  // namespace gristmill
