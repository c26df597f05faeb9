#pragma once

// One function per part; each adds its classes and functions to a module.

#include <pybind11/pybind11.h>

#include <string>

#include "core/run_board.h"

namespace gristmill::python {

namespace py = pybind11;

// gristmill._core: needs no libtorch.
void bind_errors(py::module_& module);  // first: the others throw them
void bind_config(py::module_& module);
void bind_trajectory_queue(py::module_& module);
void bind_message_queue(py::module_& module);
void bind_timer_queue(py::module_& module);
void bind_timer_simulation(py::module_& module);
void bind_run_board(py::module_& module);
void bind_board_row(py::module_& module);  // after the board
void bind_stage_clock(py::module_& module);
void bind_profile(py::module_& module);
void bind_memory_speed(py::module_& module);
void bind_segments(py::module_& module);
void bind_launch(py::module_& module);
void bind_environments(py::module_& module);
void bind_worker_pool(py::module_& module);  // after the board and the configuration
void bind_worker_logs(py::module_& module);

// gristmill._train: needs libtorch.
void bind_checkpoint(py::module_& module);
void bind_train(py::module_& module);
void bind_policy(py::module_& module);

// The counter with this name ("frames", …). Throws ValueError.
Counter counter_of(const std::string& name);

// Phase, pid, heartbeat, error and counters of a row.
py::dict row_to_python(const RunBoard::Row& row);

}  // namespace gristmill::python
