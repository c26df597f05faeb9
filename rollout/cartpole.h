#pragma once

// CartPole-v1 as Gymnasium 1.x steps it: the same equations in double precision, the same ends, the
// same 500-step time limit. Only the random numbers of the starts differ.
//
// Observation: float32 [4]: cart position (m), its velocity (m/s), pole angle (rad), its velocity.
// Action: Discrete(2): push left (0) or right (1). Reward: 1 for every step, the last included.

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>

#include "rollout/environment.h"
#include "rollout/random.h"

namespace gristmill {

class CartPole {
 public:
  static constexpr int kMaxSteps = 500;

  struct State {
    double x = 0, x_velocity = 0, angle = 0, angle_velocity = 0;
  };

  static EnvironmentSpec spec();
  explicit CartPole(std::uint64_t seed) : random_(seed) {}

  void reset(float* observation) {
    state_ = {start(), start(), start(), start()};
    steps_ = 0;
    observe(observation);
  }

  // Defined here so that Vectorised<CartPole>'s loop inlines it. Falling in the last step allowed is
  // terminated and truncated at once, as with Gymnasium's TimeLimit.
  StepResult step(std::int32_t action, float* observation) {
    const double force = action == 1 ? kForce : -kForce;
    const auto [sine, cosine] = sine_cosine(state_.angle);
    const double pull =
        (force + kPoleMassLength * (state_.angle_velocity * state_.angle_velocity) * sine) / kTotalMass;
    const double angle_acceleration =
        (kGravity * sine - cosine * pull) /
        (kHalfLength * (4.0 / 3.0 - kPoleMass * (cosine * cosine) / kTotalMass));
    const double acceleration = pull - kPoleMassLength * angle_acceleration * cosine / kTotalMass;

    // Explicit Euler: positions move with the old velocities.
    state_.x += kTimeStep * state_.x_velocity;
    state_.x_velocity += kTimeStep * acceleration;
    state_.angle += kTimeStep * state_.angle_velocity;
    state_.angle_velocity += kTimeStep * angle_acceleration;
    ++steps_;
    observe(observation);
    return {.reward = 1,
            .terminated = std::abs(state_.x) > kMostX || std::abs(state_.angle) > kMostAngle,
            .truncated = steps_ >= kMaxSteps};
  }

  // For comparisons with other implementations: goes on from `state`, `steps` into the episode.
  void set_state(const State& state, int steps) {
    state_ = state;
    steps_ = steps;
  }
  const State& state() const { return state_; }

 private:
  static constexpr double kGravity = 9.8;
  static constexpr double kPoleMass = 0.1;
  static constexpr double kTotalMass = 0.1 + 1.0;
  static constexpr double kHalfLength = 0.5;
  static constexpr double kPoleMassLength = kPoleMass * kHalfLength;
  static constexpr double kForce = 10;
  static constexpr double kTimeStep = 0.02;
  static constexpr double kMostX = 2.4;
  static constexpr double kMostAngle = 12 * 2 * std::numbers::pi / 360;
  static constexpr double kStartRange = 0.05;

  // The Taylor series behind x - x^3 / 6 … and 1 - x^2 / 2 …, from the second and third term on.
  static constexpr std::array kSine = {-1.0 / 6,        1.0 / 120,        -1.0 / 5040,         1.0 / 362880,
                                       -1.0 / 39916800, 1.0 / 6227020800, -1.0 / 1307674368000};
  static constexpr std::array kCosine = {1.0 / 24,       -1.0 / 720,      1.0 / 40320,
                                         -1.0 / 3628800, 1.0 / 479001600, -1.0 / 87178291200};

  template <std::size_t n>
  static double polynomial(const std::array<double, n>& coefficients, double y) {
    double sum = coefficients[n - 1];
    for (std::size_t i = n - 1; i-- > 0;) sum = sum * y + coefficients[i];
    return sum;
  }

  struct SineCosine {
    double sine, cosine;
  };

  // Within half a radian, where all angles of an episode lie, these series are exact to the last bit
  // of a double, and several times as fast as std::sin and std::cos.
  static SineCosine sine_cosine(double x) {
    if (std::abs(x) > 0.5) [[unlikely]] {
      return {std::sin(x), std::cos(x)};
    }
    const double y = x * x;
    return {x + x * y * polynomial(kSine, y), 1 - (y / 2 - y * y * polynomial(kCosine, y))};
  }

  double start() { return random_.uniform(-kStartRange, kStartRange); }

  void observe(float* observation) const {
    observation[0] = static_cast<float>(state_.x);
    observation[1] = static_cast<float>(state_.x_velocity);
    observation[2] = static_cast<float>(state_.angle);
    observation[3] = static_cast<float>(state_.angle_velocity);
  }

  State state_;
  int steps_ = 0;
  Random random_;
};

}  // namespace gristmill
