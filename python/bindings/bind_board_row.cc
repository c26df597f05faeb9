// What a process of a run that is written in Python tells the board about itself: a worker with a policy of
// the user's own, and the loop that learns from gm.Rollouts.

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <bit>
#include <utility>

#include "core/run_board.h"
#include "core/stage_clock.h"
#include "python/bindings/bindings.h"
#include "python/bindings/board_row.h"

namespace gristmill::python {
namespace {

Phase phase_of(const std::string& name) {
  if (name == "described") return Phase::kDescribed;
  if (name == "running") return Phase::kRunning;
  if (name == "stopped") return Phase::kStopped;
  if (name == "failed") return Phase::kFailed;
  if (name == "fatal") return Phase::kFatal;
  throw py::value_error("phase '" + name + "'; expected one of: described, running, stopped, failed, fatal");
}

Measure measure_of(const std::string& name) {
  for (std::size_t i = 0; i < kMeasureCount; ++i) {
    if (name == kMeasureNames[i]) return static_cast<Measure>(i);
  }
  throw py::value_error("no measure '" + name + "' on the board");
}

PyRow enter_row(py::object board, std::optional<int> index) {
  auto& shared = board.cast<RunBoard&>();
  if (index && (*index < 0 || *index >= shared.rows())) throw py::index_error("no such row on the board");
  PyRow row{std::move(board), index ? shared.row(*index) : shared.learner()};
  if (!index) row.row.prepare(0);  // a worker's is prepared by its supervisor
  row.row.enter();
  return row;
}

void record_each(PyRow& self, const std::string& name,
                 const py::array_t<std::int64_t, py::array::forcecast>& values) {
  const Measure measure = measure_of(name);
  const auto all = values.unchecked<1>();
  for (py::ssize_t i = 0; i < all.shape(0); ++i) {
    self.row.record(measure, static_cast<std::uint64_t>(std::max<std::int64_t>(all(i), 0)));
  }
}

void bind_row(py::module_& module) {
  py::class_<PyRow>(module, "BoardRow",
                    "This process's own row on the board: how far it is, and how it ended.")
      .def(
          "beat", [](PyRow& self) { self.row.beat(); }, "This process is alive now.")
      .def(
          "add",
          [](PyRow& self, const std::string& counter, std::uint64_t n) {
            self.row.add(counter_of(counter), n);
          },
          py::arg("counter"), py::arg("n"), "Adds n to the counter. ValueError: no such counter.")
      .def(
          "set",
          [](PyRow& self, const std::string& counter, std::uint64_t value) {
            self.row.set(counter_of(counter), value);
          },
          py::arg("counter"), py::arg("value"), "The counter is value now. ValueError: no such counter.")
      .def(
          "set_queue_size",
          [](PyRow& self, std::uint64_t size) {
            self.row.set(Counter::kQueueSize, size);
            self.row.set(Counter::kQueueSizeNs, StageClock::now_ns());
          },
          py::arg("size"), "Trajectories in the queue, as seen now.")
      .def(
          "set_mean_return",
          [](PyRow& self, double value) {
            self.row.set(Counter::kMeanReturn, std::bit_cast<std::uint64_t>(value));
          },
          py::arg("value"), "Of the last episodes.")
      .def("record_each", &record_each, py::arg("measure"), py::arg("values"),
           "Counts each of values, [n], in the measure's histogram; less than 0 as 0.")
      .def(
          "set_phase", [](PyRow& self, const std::string& phase) { self.row.set_phase(phase_of(phase)); },
          "described, running, stopped, failed or fatal; wakes who waits for a change. ValueError: another.")
      .def(
          "set_description", [](PyRow& self, const std::string& json) { self.row.set_description(json); },
          "The environment's spaces, before the phase described. ValueError: too long.")
      .def(
          "set_error", [](PyRow& self, const std::string& text) { self.row.set_error(text); },
          "Before the phase failed or fatal; a long text keeps its end.")
      .def_property_readonly(
          "incarnation", [](const PyRow& self) { return self.row.incarnation(); },
          "0 at first, one more at each restart.");
  module.def("enter_row", &enter_row, py::arg("board"), py::arg("index"),
             "The row is this process's now: a worker's, or, with None, the learner's, which begins anew.");
}

}  // namespace

void bind_board_row(py::module_& module) {
  bind_row(module);
  bind_stage_clock(module);
}

}  // namespace gristmill::python
