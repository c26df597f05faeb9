#pragma once

// A VectorEnvironment whose environments are Python's.

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "rollout/environment.h"

namespace gristmill {

// Wraps an object with
//   spec() -> str: the JSON of an EnvironmentSpec
//   reset(observations), step(actions, observations, rewards, terminated, truncated,
//   final_observations): NumPy arrays, one row per environment, that it reads and writes in place
//   close(), __len__()
// such as gristmill.gymnasium_env.GymnasiumVector. The arrays are views of the caller's rows: nothing
// is copied. reset and step take the GIL themselves, and throw std::runtime_error with the exception
// and its traceback when Python raises. One thread at a time; it need not hold the GIL.
class __attribute__((visibility("hidden"))) PythonVectorEnvironment final : public VectorEnvironment {
 public:
  // REQUIRES: the GIL. Throws what spec() raises, and std::invalid_argument for a bad description.
  explicit PythonVectorEnvironment(pybind11::object environment);
  ~PythonVectorEnvironment() override;
  PythonVectorEnvironment(const PythonVectorEnvironment&) = delete;
  PythonVectorEnvironment& operator=(const PythonVectorEnvironment&) = delete;

  const EnvironmentSpec& spec() const override { return spec_; }
  std::int64_t size() const override { return size_; }
  void reset(Rows observations) override;
  void step(Rows actions, const StepRows& out) override;

 private:
  // Where the arrays of one step lie. A worker's buffer has as many as its trajectories have steps.
  using Key = std::array<Rows, 6>;
  struct KeyHash {
    std::size_t operator()(const Key& key) const;
  };
  struct KeyEqual {
    bool operator()(const Key& a, const Key& b) const;
  };

  pybind11::array view(Rows rows, const pybind11::dtype& dtype, const std::vector<std::int64_t>& shape) const;
  const pybind11::tuple& step_arguments(const Key& key);

  pybind11::object environment_;
  pybind11::object step_;
  EnvironmentSpec spec_;
  std::int64_t size_ = 0;
  std::unordered_map<Key, pybind11::tuple, KeyHash, KeyEqual> arguments_;
};

// The exception now in `error` as text for people: its message first, which must survive a cut, then
// the traceback with its causes. REQUIRES: the GIL.
std::string describe(const pybind11::error_already_set& error);

}  // namespace gristmill
