#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <chrono>
#include <exception>
#include <string>
#include <utility>

#include "learner/train.h"
#include "python/bindings/bindings.h"
#include "python/bindings/launch_holder.h"
#include "python/bindings/worker_event.h"

namespace gristmill::python {
namespace {

// Runs Python's hooks under the GIL. What a hook or a signal handler raises ends the run in an
// orderly way, and is thrown after it. Used by the thread that called train().
class Hooks {
 public:
  Hooks(py::object on_metrics, py::object on_event, py::object on_message, py::object on_log)
      : on_metrics_(std::move(on_metrics)),
        on_event_(std::move(on_event)),
        on_message_(std::move(on_message)),
        on_log_(std::move(on_log)) {}

  TrainHooks hooks() {
    TrainHooks hooks;
    hooks.on_metrics = [this](const Metrics& metrics) { call(on_metrics_, metrics); };
    hooks.on_event = [this](const WorkerEvent& event) { call(on_event_, event); };
    hooks.on_message = [this](const std::string& message) { call(on_message_, message); };
    hooks.on_log = [this](int level, const std::string& text) { call(on_log_, level, text); };
    hooks.should_stop = [this] { return should_stop(); };
    return hooks;
  }

  // With the GIL. Throws what ended the run.
  void rethrow() {
    if (raised_) std::rethrow_exception(std::exchange(raised_, nullptr));
  }

 private:
  using Clock = std::chrono::steady_clock;
  // The GIL may be held by another thread for its switch interval: asking at every batch would make
  // the learner wait for it.
  static constexpr std::chrono::milliseconds kSignalInterval{20};

  template <class... Arguments>
  void call(const py::object& hook, const Arguments&... arguments) {
    if (hook.is_none()) return;
    py::gil_scoped_acquire acquire;
    keep_exception([&] { hook(arguments...); });
  }

  bool should_stop() {
    if (raised_) return true;
    const auto now = Clock::now();
    if (now < next_check_) return false;
    next_check_ = now + kSignalInterval;
    py::gil_scoped_acquire acquire;
    keep_exception([] {
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    });
    return raised_ != nullptr;
  }

  template <class Function>
  void keep_exception(Function&& function) {
    try {
      function();
    } catch (...) {
      if (!raised_) raised_ = std::current_exception();
    }
  }

  const py::object on_metrics_, on_event_, on_message_, on_log_;
  std::exception_ptr raised_;
  Clock::time_point next_check_{};
};

const char* end_name(TrainResult::End end) {
  switch (end) {
    case TrainResult::End::kFrames:
      return "frames";
    case TrainResult::End::kSolved:
      return "solved";
    case TrainResult::End::kInterrupted:
      return "interrupted";
    case TrainResult::End::kFailed:
      return "failed";
  }
  return "unknown";
}

py::dict to_python(const TrainResult& result) {
  py::dict lag, out;
  lag["p50"] = result.policy_lag_p50;
  lag["max"] = result.policy_lag_max;
  out["end"] = end_name(result.end);
  out["error"] = result.error;
  out["frames"] = result.frames;
  out["wall_s"] = result.wall_s;
  out["fps"] = result.fps;
  out["launch_to_first_step_s"] = result.launch_to_first_step_s;
  out["mean_return"] = result.mean_return;
  out["mean_length"] = result.mean_length;
  out["episodes"] = result.episodes;
  out["solved"] = result.solved;
  out["solved_at_s"] = result.solved_at_s;
  out["policy_lag"] = lag;
  out["restarts"] = result.restarts;
  out["dropped_stale"] = result.dropped_stale;
  out["version"] = result.version;
  out["parameter_hash"] = result.parameter_hash;
  out["run_dir"] = result.run_dir;
  out["checkpoint"] = result.checkpoint;
  return out;
}

// (result as a dict, what a hook or a signal handler raised during the run, or None).
py::tuple run_train(LaunchHolder& holder, const std::string& resume_from, py::object on_metrics,
                    py::object on_event, py::object on_message, py::object on_log) {
  if (!holder.launch) throw py::value_error("the launch is closed");
  Hooks hooks(std::move(on_metrics), std::move(on_event), std::move(on_message), std::move(on_log));
  TrainResult result;
  {
    py::gil_scoped_release release;
    result = train(*holder.launch, resume_from, hooks.hooks());
  }
  py::object raised = py::none();
  try {
    hooks.rethrow();
  } catch (const py::error_already_set& error) {
    raised = error.value();
    if (const auto& trace = error.trace()) raised.attr("__traceback__") = trace;
  }
  return py::make_tuple(to_python(result), raised);
}

}  // namespace

void bind_train(py::module_& module) {
  py::class_<WorkerEvent>(module, "WorkerEvent", "What happened to a worker.")
      .def_property_readonly(
          "kind", [](const WorkerEvent& self) { return kind_name(self.kind); },
          "started, died, failed, hung, restarted or gave_up.")
      .def_readonly("worker", &WorkerEvent::worker, "Its index.")
      .def_readonly("pid", &WorkerEvent::pid, "Of its process.")
      .def_readonly("message", &WorkerEvent::message, "For people.")
      .def("__repr__", [](const WorkerEvent& self) { return "<WorkerEvent " + self.message + ">"; });

  module.def(
      "train", &run_train, py::arg("launch"), py::arg("resume_from") = "", py::arg("on_metrics") = py::none(),
      py::arg("on_event") = py::none(), py::arg("on_message") = py::none(), py::arg("on_log") = py::none(),
      "Blocks until the run has ended; the GIL is free meanwhile. resume_from: a checkpoint's directory. "
      "on_log(level, text): warnings and worse that workers said. "
      "Returns (result, raised): raised is what a hook or a signal handler raised, which ended the run in "
      "an orderly way, or None. Raises what keeps a run from starting.");
  module.def("process_age_s", &process_age_s, "Seconds since this process started.");
}

}  // namespace gristmill::python
