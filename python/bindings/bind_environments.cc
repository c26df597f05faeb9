// Vectors of environments from Python: for evaluation, and for comparisons with other implementations.

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "python/bindings/bindings.h"
#include "python/bindings/python_environment.h"
#include "rollout/cartpole.h"
#include "rollout/environment.h"
#include "rollout/vectorised.h"

namespace gristmill::python {
namespace {

// Owns the arrays that the environments write into; hands out copies.
class Environments {
 public:
  explicit Environments(std::unique_ptr<VectorEnvironment> environments)
      : environments_(std::move(environments)),
        observations_(
            array(environments_->spec().observation_dtype, environments_->spec().observation_shape)),
        final_observations_(
            array(environments_->spec().observation_dtype, environments_->spec().observation_shape)),
        rewards_(array(DType::kFloat32, {})),
        terminated_(array(DType::kBool, {})),
        truncated_(array(DType::kBool, {})) {}

  std::int64_t size() const { return environments_->size(); }
  std::string spec() const { return environments_->spec().to_json(); }

  py::array reset() {
    environments_->reset(rows(observations_));
    return copy(observations_);
  }

  py::tuple step(const py::object& actions) {
    py::array given = as_actions(actions);
    environments_->step(rows(given), {.observations = rows(observations_),
                                      .rewards = rows(rewards_),
                                      .terminated = rows(terminated_),
                                      .truncated = rows(truncated_),
                                      .final_observations = rows(final_observations_)});
    return py::make_tuple(copy(observations_), copy(rewards_), copy(terminated_), copy(truncated_),
                          copy(final_observations_));
  }

  void reset_into(py::array observations) { environments_->reset(rows_of(observations, observation_row())); }

  void step_into(const py::object& actions, py::array observations, py::array rewards, py::array terminated,
                 py::array truncated, py::array final_observations) {
    py::array given = as_actions(actions);
    environments_->step(rows(given), {.observations = rows_of(observations, observation_row()),
                                      .rewards = rows_of(rewards, {DType::kFloat32, {}}),
                                      .terminated = rows_of(terminated, {DType::kBool, {}}),
                                      .truncated = rows_of(truncated, {DType::kBool, {}}),
                                      .final_observations = rows_of(final_observations, observation_row())});
  }

  void set_cartpole_state(std::int64_t index, const std::array<double, 4>& state, int steps) {
    auto* cartpoles = dynamic_cast<Vectorised<CartPole>*>(environments_.get());
    if (cartpoles == nullptr) throw std::invalid_argument("set_cartpole_state: these are no cartpoles");
    if (index < 0 || index >= size()) {
      throw py::index_error("environment " + std::to_string(index) + " of " + std::to_string(size()));
    }
    cartpoles->copy(index).set_state({state[0], state[1], state[2], state[3]}, steps);
  }

 private:
  py::array array(DType dtype, const std::vector<std::int64_t>& shape) const {
    std::vector<py::ssize_t> extents = {environments_->size()};
    extents.insert(extents.end(), shape.begin(), shape.end());
    py::array zeros = py::module_::import("numpy").attr("zeros")(extents, std::string(dtype_name(dtype)));
    return zeros;
  }

  py::array as_actions(const py::object& actions) const {
    const EnvironmentSpec& spec = environments_->spec();
    std::vector<py::ssize_t> expected = {size()};
    if (!spec.discrete()) expected.push_back(spec.action_dims);
    const py::array given = spec.discrete() ? py::array(py::array_t<std::int32_t, kDense>(actions))
                                            : py::array(py::array_t<float, kDense>(actions));
    if (std::vector<py::ssize_t>(given.shape(), given.shape() + given.ndim()) != expected) {
      throw std::invalid_argument("step: expected one action for each of " + std::to_string(size()) +
                                  " environments");
    }
    if (spec.discrete()) {
      const auto* values = static_cast<const std::int32_t*>(given.data());
      for (py::ssize_t i = 0; i < size(); ++i) {
        if (values[i] < 0 || values[i] >= spec.action_count) {
          throw std::invalid_argument("step: action " + std::to_string(values[i]) + " of environment " +
                                      std::to_string(i) + "; expected 0 to " +
                                      std::to_string(spec.action_count - 1));
        }
      }
    }
    return given;
  }

  struct Row {
    DType dtype;
    std::vector<std::int64_t> shape;
  };
  Row observation_row() const {
    return {environments_->spec().observation_dtype, environments_->spec().observation_shape};
  }

  // Rows of the caller's array, any stride apart, each dense in itself.
  Rows rows_of(py::array& array, const Row& row) const {
    const py::dtype dtype(std::string(dtype_name(row.dtype)));
    bool fits = array.writeable() && array.dtype().equal(dtype) &&
                array.ndim() == static_cast<py::ssize_t>(row.shape.size()) + 1 && array.shape(0) == size();
    py::ssize_t dense = dtype.itemsize();
    for (py::ssize_t d = fits ? array.ndim() - 1 : 0; d > 0; --d) {
      const std::int64_t extent = row.shape[static_cast<std::size_t>(d - 1)];
      fits = fits && array.shape(d) == extent && (extent == 1 || array.strides(d) == dense);
      dense *= extent;
    }
    if (!fits) {
      throw std::invalid_argument("expected a writeable " + std::string(dtype_name(row.dtype)) +
                                  " array of " + std::to_string(size()) +
                                  " rows, each as the environment describes it");
    }
    return {static_cast<std::byte*>(array.mutable_data()), array.strides(0)};
  }

  static Rows rows(py::array& array) {
    return {static_cast<std::byte*>(const_cast<void*>(array.data())), array.strides(0)};
  }
  static py::array copy(const py::array& array) { return array.attr("copy")(); }

  static constexpr int kDense = py::array::c_style | py::array::forcecast;

  std::unique_ptr<VectorEnvironment> environments_;
  py::array observations_, final_observations_, rewards_, terminated_, truncated_;
};

}  // namespace

void bind_environments(py::module_& module) {
  py::class_<Environments>(module, "VectorEnvironment",
                           "Many environments stepped as one; the next episode begins in "
                           "the step of an episode's end.")
      .def(py::init([](const std::string& id, std::int64_t count, std::uint64_t seed,
                       std::int64_t first_index, const std::string& kwargs) {
             return std::make_unique<Environments>(
                 make_native_environments(id, count, seed, first_index, kwargs));
           }),
           py::arg("id"), py::arg("count") = 1, py::arg("seed") = 0, py::arg("first_index") = 0,
           py::arg("kwargs") = "{}",
           "Copies of a native environment, the i-th seeded from stream (seed, first_index + i). kwargs: a "
           "JSON "
           "object, for plugins.")
      .def_static(
          "wrap",
          [](py::object environments) {
            return std::make_unique<Environments>(
                std::make_unique<PythonVectorEnvironment>(std::move(environments)));
          },
          py::arg("environments"),
          "The environments of a Python object such as a gristmill.gymnasium_env.GymnasiumVector, through "
          "the same adapter as in a worker.")
      .def("__len__", &Environments::size)
      .def("spec", &Environments::spec, "Shapes and actions, as JSON.")
      .def("reset", &Environments::reset, "Begins an episode in each; returns observations [E, *shape].")
      .def("step", &Environments::step, py::arg("actions"),
           "actions: [E] integers or [E, dims] numbers. Returns (observations, rewards, terminated, "
           "truncated, "
           "final_observations); rows of the last are of this step only where an episode ended.")
      .def("reset_into", &Environments::reset_into, py::arg("observations"),
           "As reset(), into the rows of an array.")
      .def("step_into", &Environments::step_into, py::arg("actions"), py::arg("observations"),
           py::arg("rewards"), py::arg("terminated"), py::arg("truncated"), py::arg("final_observations"),
           "As step(), into the rows of arrays, which may lie any stride apart.")
      .def("set_cartpole_state", &Environments::set_cartpole_state, py::arg("index"), py::arg("state"),
           py::arg("steps") = 0,
           "cartpole only: environment `index` goes on from `state` (position, velocity, angle, angular "
           "velocity), `steps` into its episode.");
  module.def("native_environment_ids", &native_environment_ids, "What env.id can be, besides gymnasium:ID.");
  module.def("is_native_environment", &is_native_environment, py::arg("id"),
             "Whether workers in C++ step env.id `id`.");
}

}  // namespace gristmill::python
