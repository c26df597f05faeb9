// gristmill._rollout: the worker loop for Python workers. Apart from gristmill._core because it links
// libtorch, which takes a third of a second to load.

#include <pybind11/functional.h>
#include <pybind11/pybind11.h>

#include <stdexcept>
#include <string>

#include "python/bindings/python_environment.h"
#include "rollout/worker.h"

namespace py = pybind11;

namespace gristmill::python {
namespace {

// Calls Python for a worker's environments. A ValueError (gristmill.spaces.UnusableEnvironmentError is one)
// becomes std::invalid_argument: a restart would not mend it.
std::unique_ptr<VectorEnvironment> make_environments(const py::object& factory, const Config& config,
                                                     std::uint64_t seed, std::int64_t first_index) {
  const py::gil_scoped_acquire gil;
  try {
    return std::make_unique<PythonVectorEnvironment>(
        factory(config.env.id, config.env.kwargs, config.workers.envs_per_worker, seed, first_index));
  } catch (const py::error_already_set& error) {
    if (error.matches(PyExc_ValueError)) {
      // Its traceback is ours, and of no use; that of a cause leads into the environment's own code.
      const bool caused = !error.value().attr("__cause__").is_none();
      throw std::invalid_argument(caused ? describe(error) : py::str(error.value()).cast<std::string>());
    }
    throw std::runtime_error(describe(error));
  }
}

int run(const std::string& board, int index, const py::object& factory) {
  const py::gil_scoped_release unlocked;
  return run_worker(board, index, [&](const Config& config, std::uint64_t seed, std::int64_t first_index) {
    return make_environments(factory, config, seed, first_index);
  });
}

}  // namespace
}  // namespace gristmill::python

PYBIND11_MODULE(_rollout, module) {
  module.doc() = "The worker loop for environments in Python.";
  module.def("run_worker", &gristmill::python::run, py::arg("board"), py::arg("index"),
             py::arg("make_environments"),
             "Runs worker `index` of the run whose board is `board` until the run ends; returns its exit "
             "status. make_environments(env_id, kwargs, count, seed, first_index) returns the worker's "
             "environments, such as a gristmill.gymnasium_env.GymnasiumVector. Blocks without the GIL.");
}
