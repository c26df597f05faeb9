#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include <exception>

#include "learner/checkpoint.h"
#include "python/bindings/bindings.h"
#include "python/bindings/errors.h"

namespace gristmill::python {

void bind_checkpoint(py::module_& module) {
  auto& error = py::register_exception<CheckpointError>(module, "CheckpointError", PyExc_RuntimeError);
  error.attr("__doc__") = "A checkpoint that cannot be written or must not be used.";
  static PyObject* const type = error.ptr();
  // NOLINTNEXTLINE(performance-unnecessary-value-param): the signature is pybind11's.
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const CheckpointError& damaged) {
      set_error(type, damaged.what());
    }
  });

  py::class_<CheckpointState>(module, "CheckpointState", "What a checkpoint holds, verified.")
      .def_readonly("frames", &CheckpointState::frames, "Environment steps learned from.")
      .def_readonly("version", &CheckpointState::version, "Of the parameters.")
      .def_readonly("episodes", &CheckpointState::episodes, "Finished, over all launches.")
      .def_readonly("elapsed_s", &CheckpointState::elapsed_s, "Seconds of training, over all launches.")
      .def_readonly("counters", &CheckpointState::counters, "Others, by name.")
      .def_readonly("environment", &CheckpointState::environment, "The environment's spaces, as JSON.");

  module.def("load_checkpoint", &load_checkpoint, py::arg("directory"),
             "Reads and verifies one. Raises CheckpointError.");
  module.def(
      "latest_checkpoint", &latest_checkpoint, py::arg("run_dir"),
      "The newest one of a run, verified, or None. Raises CheckpointError for a damaged one; the message "
      "offers the one before.");
  module.def("list_checkpoints", &list_checkpoints, py::arg("run_dir"), "Oldest first, unverified.");
}

}  // namespace gristmill::python
