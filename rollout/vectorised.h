#pragma once

// Many copies of one native environment stepped as one, without a virtual call per copy: the loop
// is compiled for each environment class, and step() is inlined into it where its body is visible.

#include <concepts>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "rollout/environment.h"

namespace gristmill {

// What an environment class offers: Discrete actions are std::int32_t, Box actions const float*.
template <typename E>
concept DiscreteEnvironment = requires(E e, std::int32_t action, float* observation) {
  { E::spec() } -> std::same_as<EnvironmentSpec>;
  { e.step(action, observation) } -> std::same_as<StepResult>;
  e.reset(observation);
};
template <typename E>
concept BoxEnvironment = requires(E e, const float* action, float* observation) {
  { E::spec() } -> std::same_as<EnvironmentSpec>;
  { e.step(action, observation) } -> std::same_as<StepResult>;
  e.reset(observation);
};

template <typename E>
  requires(DiscreteEnvironment<E> || BoxEnvironment<E>) && std::constructible_from<E, std::uint64_t>
class Vectorised final : public VectorEnvironment {
 public:
  // Copy i is seeded from (seed, first_index + i): no two copies of a run share a stream, whichever
  // worker holds them. Throws std::invalid_argument for a count below 1 or a negative first_index.
  Vectorised(std::int64_t count, std::uint64_t seed, std::int64_t first_index) {
    if (count < 1 || first_index < 0) {
      throw std::invalid_argument("Vectorised: " + std::to_string(count) + " environments from index " +
                                  std::to_string(first_index) +
                                  "; expected at least 1, from index 0 or later");
    }
    if (spec_.observation_dtype != DType::kFloat32 || spec_.discrete() != DiscreteEnvironment<E>) {
      throw std::logic_error("Vectorised: spec() of the environment contradicts its step()");
    }
    environments_.reserve(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) {
      environments_.emplace_back(stream_seed(seed, static_cast<std::uint64_t>(first_index + i)));
    }
  }

  const EnvironmentSpec& spec() const override { return spec_; }
  std::int64_t size() const override { return static_cast<std::int64_t>(environments_.size()); }

  void reset(Rows observations) override {
    for (std::int64_t i = 0; i < size(); ++i) copy(i).reset(as<float>(observations.row(i)));
  }

  void step(Rows actions, const StepRows& out) override {
    const std::int64_t count = size();
    const std::size_t observation_bytes = observation_bytes_;
    for (std::int64_t i = 0; i < count; ++i) {
      float* const observation = as<float>(out.observations.row(i));
      const StepResult result = step_one(copy(i), actions.row(i), observation);
      *as<float>(out.rewards.row(i)) = result.reward;
      *as<bool>(out.terminated.row(i)) = result.terminated;
      *as<bool>(out.truncated.row(i)) = result.truncated;
      if (result.terminated || result.truncated) {
        std::memcpy(out.final_observations.row(i), observation, observation_bytes);
        copy(i).reset(observation);
      }
    }
  }

  // Copy i itself, for tests and tools.
  E& copy(std::int64_t i) { return environments_[static_cast<std::size_t>(i)]; }

 private:
  template <typename T>
  static T* as(std::byte* row) {
    return reinterpret_cast<T*>(row);
  }

  StepResult step_one(E& environment, const std::byte* action, float* observation) const {
    if constexpr (DiscreteEnvironment<E>) {
      return environment.step(*reinterpret_cast<const std::int32_t*>(action), observation);
    } else {
      return environment.step(reinterpret_cast<const float*>(action), observation);
    }
  }

  EnvironmentSpec spec_ = E::spec();
  std::size_t observation_bytes_ = spec_.observation_bytes();
  std::vector<E> environments_;
};

}  // namespace gristmill
