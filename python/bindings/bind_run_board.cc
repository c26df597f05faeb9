#include <pybind11/stl.h>

#include <array>

#include "core/run_board.h"
#include "python/bindings/bindings.h"
#include "python/bindings/waiting.h"

namespace gristmill::python {
namespace {

// In the order of Counter.
constexpr std::array<const char*, static_cast<std::size_t>(Counter::kCount)> kCounterNames = {
    "frames",  "episodes",      "trajectories",  "environment_ns", "inference_ns", "space_wait_ns",
    "copy_ns", "parameters_ns", "first_step_ns", "last_step_ns",   "version"};

const char* phase_name(Phase phase) {
  switch (phase) {
    case Phase::kEmpty:
      return "empty";
    case Phase::kStarting:
      return "starting";
    case Phase::kDescribed:
      return "described";
    case Phase::kRunning:
      return "running";
    case Phase::kStopped:
      return "stopped";
    case Phase::kFailed:
      return "failed";
    case Phase::kFatal:
      return "fatal";
  }
  return "unknown";
}

py::dict row_to_python(RunBoard& board, int index) {
  const auto row = board.row(index);
  py::dict counters;
  for (std::size_t i = 0; i < kCounterNames.size(); ++i) {
    counters[kCounterNames[i]] = row.get(static_cast<Counter>(i));
  }
  py::dict out;
  out["phase"] = phase_name(row.phase());
  out["pid"] = row.identity().pid;
  out["incarnation"] = row.incarnation();
  out["since_beat_s"] = std::chrono::duration<double>(row.since_beat()).count();
  out["description"] = row.description();
  out["error"] = row.error();
  out["counters"] = counters;
  return out;
}

}  // namespace

void bind_run_board(py::module_& module) {
  py::class_<RunBoard>(
      module, "RunBoard",
      "Who takes part in a run, how far each is, and how each ended. Reading disturbs no one.")
      .def_static(
          "attach",
          [](const std::string& name, std::optional<double> timeout) {
            const Deadline deadline = deadline_of(timeout);
            py::gil_scoped_release release;
            return RunBoard::attach(name, deadline);
          },
          py::arg("name"), py::arg("timeout") = 5.0, "Raises SegmentError.")
      .def_property_readonly("name", &RunBoard::name)
      .def("__len__", &RunBoard::rows)
      .def(
          "row",
          [](RunBoard& self, int index) {
            if (index < 0 || index >= self.rows()) {
              throw py::index_error("row " + std::to_string(index) + " of a board with " +
                                    std::to_string(self.rows()) + " rows");
            }
            return row_to_python(self, index);
          },
          py::arg("index"), "Phase, pid, heartbeat, error and counters of one process, as a dict.")
      .def_property_readonly("config", &RunBoard::config, "The resolved configuration, as YAML.")
      .def("request_stop", &RunBoard::request_stop, "Asks every process of the run to end in an orderly way.")
      .def_property_readonly("stop_requested", &RunBoard::stop_requested);
}

}  // namespace gristmill::python
