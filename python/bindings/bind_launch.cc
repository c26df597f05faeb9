#include <pybind11/stl.h>

#include "python/bindings/bindings.h"
#include "python/bindings/launch_holder.h"

namespace gristmill::python {

void bind_launch(py::module_& module) {
  py::class_<LaunchHolder>(
      module, "Launch",
      "The start of a run: its directory, its board and its workers. Used with `with`, or closed: "
      "that stops the workers and removes the shared memory.")
      .def(py::init([](const ResolvedConfig& config, std::vector<std::string> worker_command,
                       std::string resume_dir, std::int64_t earlier_launches) {
             py::gil_scoped_release release;
             LaunchOptions options;
             options.worker_command = std::move(worker_command);
             options.resume_dir = std::move(resume_dir);
             options.earlier_launches = earlier_launches;
             return LaunchHolder{std::make_unique<Launch>(config, options)};
           }),
           py::arg("config"), py::arg("worker_command"), py::arg("resume_dir") = "",
           py::arg("earlier_launches") = 0,
           "Raises ConfigError, SegmentError or RuntimeError; nothing is left running then.")
      .def_property_readonly(
          "run_dir",
          [](const LaunchHolder& self) {
            if (!self.launch) throw py::value_error("the launch is closed");
            return self.launch->run_dir();
          },
          "Where the run's files lie. ValueError: the launch is closed.")
      .def(
          "close",
          [](LaunchHolder& self) {
            py::gil_scoped_release release;
            self.launch.reset();
          },
          "Idempotent. Blocks until the workers have ended, two seconds at most.")
      .def("__enter__", [](py::object self) { return self; })
      .def("__exit__", [](LaunchHolder& self, const py::args&) {
        py::gil_scoped_release release;
        self.launch.reset();
      });
  module.def("native_worker_command", &native_worker_command, "The command that starts a worker in C++.");
}

}  // namespace gristmill::python
