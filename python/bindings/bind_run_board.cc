#include <pybind11/stl.h>

#include "core/run_board.h"
#include "core/stage_clock.h"
#include "python/bindings/bindings.h"
#include "python/bindings/waiting.h"

namespace gristmill::python {
namespace {

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

}  // namespace

py::dict row_to_python(const RunBoard::Row& row) {
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

Counter counter_of(const std::string& name) {
  for (std::size_t i = 0; i < kCounterNames.size(); ++i) {
    if (name == kCounterNames[i]) return static_cast<Counter>(i);
  }
  throw py::value_error("no counter '" + name + "' on the board");
}

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
      .def_static("create", &RunBoard::create, py::arg("name"), py::arg("rows"),
                  "Creates the segment `name` (see segment_name). Raises SegmentError.")
      .def_property_readonly("name", &RunBoard::name, "Of its segment.")
      .def_property_readonly(
          "owner", [](const RunBoard& self) { return self.owner().pid; }, "Its creator's pid.")
      .def("__len__", &RunBoard::rows)
      .def(
          "row",
          [](RunBoard& self, int index) {
            if (index < 0 || index >= self.rows()) {
              throw py::index_error("row " + std::to_string(index) + " of a board with " +
                                    std::to_string(self.rows()) + " rows");
            }
            return row_to_python(self.row(index));
          },
          py::arg("index"), "Phase, pid, heartbeat, error and counters of one process, as a dict.")
      .def_property_readonly("config", &RunBoard::config, "The resolved configuration, as YAML.")
      .def("set_config", &RunBoard::set_config, py::arg("yaml"), "By the creator, before workers start.")
      .def("announce_ready", &RunBoard::announce_ready, "By the creator: queue and box are there.")
      .def(
          "await_ready",
          [](RunBoard& self, double timeout) {
            const py::gil_scoped_release release;
            return self.await_ready(Deadline::in(std::chrono::duration<double>(timeout)));
          },
          py::arg("timeout"), "By a worker: waits for announce_ready(). False: timed out, or stopped.")
      .def_property_readonly("changes", &RunBoard::changes, "Changes of phase so far.")
      .def(
          "await_change",
          [](RunBoard& self, std::uint32_t seen, double timeout) {
            const py::gil_scoped_release release;
            return self.await_change(seen, Deadline::in(std::chrono::duration<double>(timeout)));
          },
          py::arg("seen"), py::arg("timeout"), "Waits until `changes` is no longer `seen`; returns it.")
      .def(
          "note_publication",
          [](RunBoard& self, std::uint64_t version) { self.note_publication(version, StageClock::now_ns()); },
          py::arg("version"), "By the learner, before it publishes: that it is now.")
      .def("unlink", &RunBoard::unlink, "Removes the name; mappings stay valid.")
      .def("request_stop", &RunBoard::request_stop, "Asks every process of the run to end in an orderly way.")
      .def_property_readonly("stop_requested", &RunBoard::stop_requested,
                             "Whether request_stop() was called, by any process.");
}

}  // namespace gristmill::python
