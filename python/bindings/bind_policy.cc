#include <pybind11/numpy.h>
#include <torch/types.h>

#include <string>
#include <vector>

#include "learner/checkpoint.h"
#include "python/bindings/arrays.h"
#include "python/bindings/bindings.h"
#include "rollout/actor.h"
#include "rollout/config.h"
#include "rollout/policy.h"

namespace gristmill::python {
namespace {

// A trained policy that acts. One thread at a time.
class LoadedPolicy {
 public:
  LoadedPolicy(const Config::Policy& config, const CheckpointState& state, std::uint64_t seed)
      : policy_(config, EnvironmentSpec::from_json(state.environment)), actor_(policy_, seed) {
    if (policy_.layout() != state.layout) {
      throw py::value_error("the checkpoint's parameters are not those of this configuration's policy");
    }
    policy_.bind(torch::tensor(state.parameters, torch::kFloat32));
  }
  LoadedPolicy(const LoadedPolicy&) = delete;
  LoadedPolicy& operator=(const LoadedPolicy&) = delete;

  const EnvironmentSpec& environment() const { return policy_.environment(); }

  // observations [B, observation…] -> (actions [B] int32 or [B, dims] float32, log_probs [B], values [B]).
  py::tuple act(const py::array& given, bool greedy) {
    const auto& spec = policy_.environment();
    const py::array observations = py::array::ensure(given, py::array::c_style);
    check(spec, observations);
    const auto count = static_cast<std::int64_t>(observations.shape(0));

    std::vector<py::ssize_t> action_shape = {count};
    if (!spec.discrete()) action_shape.push_back(spec.action_dims);
    py::array actions(spec.discrete() ? py::dtype::of<std::int32_t>() : py::dtype::of<float>(), action_shape);
    py::array_t<float> log_probs(count), values(count);
    const auto rows = [](py::array& array, std::size_t row_bytes) {
      return Rows{static_cast<std::byte*>(array.mutable_data()), static_cast<std::ptrdiff_t>(row_bytes)};
    };
    // Rows are written through elsewhere; here they are only read.
    const Rows in{const_cast<std::byte*>(static_cast<const std::byte*>(observations.data())),
                  static_cast<std::ptrdiff_t>(spec.observation_bytes())};
    const ActRows out{rows(actions, spec.action_bytes()), rows(log_probs, sizeof(float)),
                      rows(values, sizeof(float))};
    {
      py::gil_scoped_release release;
      torch::NoGradGuard no_gradients;
      if (count > 0) actor_.act(in, count, out, greedy);
    }
    return py::make_tuple(actions, log_probs, values);
  }

 private:
  static void check(const EnvironmentSpec& spec, const py::array& observations) {
    bool fits = observations.dtype().equal(numpy_dtype(spec.observation_dtype)) &&
                observations.ndim() == static_cast<py::ssize_t>(spec.observation_shape.size()) + 1;
    for (std::size_t i = 0; fits && i < spec.observation_shape.size(); ++i) {
      fits = observations.shape(static_cast<py::ssize_t>(i) + 1) == spec.observation_shape[i];
    }
    if (fits) return;
    std::string shape = "[B";
    for (const auto extent : spec.observation_shape) shape += ", " + std::to_string(extent);
    throw py::type_error("observations: expected " + std::string(dtype_name(spec.observation_dtype)) + " " +
                         shape + "], got " + std::string(py::str(observations.dtype())) + " of shape " +
                         std::string(py::str(observations.attr("shape"))));
  }

  Policy policy_;
  Actor actor_;
};

}  // namespace

void bind_policy(py::module_& module) {
  py::class_<LoadedPolicy>(module, "LoadedPolicy", "A trained policy that acts. One thread at a time.")
      .def(py::init([](const ResolvedConfig& config, const CheckpointState& state, std::uint64_t seed) {
             return std::make_unique<LoadedPolicy>(config.config.policy, state, seed);
           }),
           py::arg("config"), py::arg("checkpoint"), py::arg("seed") = 0)
      .def("act", &LoadedPolicy::act, py::arg("observations"), py::arg("greedy") = true,
           "observations [B, …] -> (actions, log_probs [B], values [B]). greedy: the most probable actions, "
           "otherwise sampled ones.")
      .def_property_readonly(
          "environment", [](const LoadedPolicy& self) { return self.environment().to_json(); },
          "The spaces it was trained on, as JSON.");
}

}  // namespace gristmill::python
