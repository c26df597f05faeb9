// What gm.Rollouts is made of: the pool of processes.

#include <pybind11/stl.h>

#include <memory>
#include <utility>

#include "core/run_board.h"
#include "core/trajectory_queue.h"
#include "python/bindings/arrays.h"
#include "python/bindings/bindings.h"
#include "python/bindings/waiting.h"
#include "python/bindings/worker_event.h"
#include "rollout/parent_death.h"
#include "rollout/trajectory.h"
#include "rollout/worker_pool.h"

namespace gristmill::python {
namespace {

// The pool borrows the board and the queue: both are kept as long as it lives.
struct PyWorkerPool {
  py::object board;
  py::object queue;
  std::unique_ptr<WorkerPool> pool;

  void stop(std::chrono::milliseconds grace) {
    const py::gil_scoped_release release;
    pool->stop(grace);
  }
};

void bind_pool(py::module_& module) {
  py::class_<PyWorkerPool>(module, "WorkerPool",
                           "Starts a run's worker processes by exec, watches and restarts them. stop() ends "
                           "them, and so does the end of the object.")
      .def(py::init([](const ResolvedConfig& config, std::vector<std::string> command, py::object board) {
             auto& shared = board.cast<RunBoard&>();
             const py::gil_scoped_release release;
             return std::make_unique<PyWorkerPool>(
                 PyWorkerPool{std::move(board), py::object(),
                              std::make_unique<WorkerPool>(config.config, std::move(command), shared)});
           }),
           py::arg("config"), py::arg("command"), py::arg("board"),
           "config: workers.count and the time-outs; command: of one worker, `--board NAME --index I` is "
           "appended. Raises RuntimeError when it cannot be started.")
      .def(
          "watch_queue",
          [](PyWorkerPool& self, py::object queue) {
            self.pool->watch_queue(&queue.cast<TrajectoryQueue&>());
            self.queue = std::move(queue);
          },
          py::arg("queue"), "So that what a dead worker had claimed there is recovered at once.")
      .def(
          "take_events",
          [](PyWorkerPool& self) {
            py::list events;
            for (const WorkerEvent& event : self.pool->take_events()) {
              events.append(py::make_tuple(kind_name(event.kind), event.worker, event.pid, event.message));
            }
            return events;
          },
          "What happened since the last call: (kind, worker, pid, message).")
      .def_property_readonly(
          "alive", [](const PyWorkerPool& self) { return self.pool->alive(); }, "Living workers.")
      .def_property_readonly(
          "restarts", [](const PyWorkerPool& self) { return self.pool->restarts(); }, "Of workers, so far.")
      .def_property_readonly(
          "failure", [](const PyWorkerPool& self) { return self.pool->failure(); },
          "Why it has given up; empty while all is well.")
      .def(
          "stop",
          [](PyWorkerPool& self, double grace) {
            self.stop(std::chrono::milliseconds(static_cast<std::int64_t>(grace * 1000)));
          },
          py::arg("grace") = 2.0,
          "Asks the workers to end, and kills those that have not after `grace` seconds.");
}

}  // namespace

void bind_worker_pool(py::module_& module) {
  bind_pool(module);
  module.def(
      "die_with_parent", [](std::int64_t pid) { die_with_parent(static_cast<pid_t>(pid)); }, py::arg("pid"),
      "Ends this process when its parent, `pid`, ends; at once if it has already.");
  module.def(
      "trajectory_fields",
      [](const std::string& environment, std::int64_t unroll) {
        return specs_to_python(trajectory_fields(EnvironmentSpec::from_json(environment), unroll));
      },
      py::arg("environment"), py::arg("unroll"),
      "{name: (dtype, shape)} of a built-in policy's trajectories. environment: a description, as JSON.");
}

}  // namespace gristmill::python
