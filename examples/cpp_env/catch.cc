// An environment of your own, in C++: catch the falling ball.
//
//   . . * . .      the ball falls one row a step
//   . . . . .
//   . . . . .
//   . _ . . .      the paddle moves left or right, or stays
//
// cmake -S examples/cpp_env -B build/catch && cmake --build build/catch
// python examples/cpp_env/run.py build/catch/catch.so

#include <algorithm>
#include <cstdint>

#include "rollout/plugin.h"
#include "rollout/random.h"

namespace {

// Observation: float32 [3]: the ball's column and row, the paddle's column, each in [0, 1].
// Action: Discrete(3): left, stay, right. Reward: at the end, 1 for a catch and -1 for a miss.
class Catch {
 public:
  static constexpr int kRows = 10;
  static constexpr int kColumns = 7;

  static gristmill::EnvironmentSpec spec() {
    gristmill::EnvironmentSpec spec;
    spec.observation_shape = {3};
    spec.action_count = 3;
    return spec;
  }

  explicit Catch(std::uint64_t seed) : random_(seed) {}

  void reset(float* observation) {
    row_ = 0;
    ball_ = static_cast<int>(random_.below(kColumns));
    paddle_ = kColumns / 2;
    observe(observation);
  }

  gristmill::StepResult step(std::int32_t action, float* observation) {
    paddle_ = std::clamp(paddle_ + action - 1, 0, kColumns - 1);
    ++row_;
    observe(observation);
    const bool down = row_ == kRows - 1;
    return {.reward = !down ? 0.0F : ball_ == paddle_ ? 1.0F : -1.0F, .terminated = down, .truncated = false};
  }

 private:
  void observe(float* observation) const {
    observation[0] = static_cast<float>(ball_) / (kColumns - 1);
    observation[1] = static_cast<float>(row_) / (kRows - 1);
    observation[2] = static_cast<float>(paddle_) / (kColumns - 1);
  }

  int row_ = 0, ball_ = 0, paddle_ = 0;
  gristmill::Random random_;
};

}  // namespace

GRISTMILL_PLUGIN({"Catch", &gristmill::make_plugin_environments<Catch>})
