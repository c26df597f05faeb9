// gristmill._core: configuration and shared memory. No libtorch: it loads in milliseconds.

#include "python/bindings/bindings.h"

PYBIND11_MODULE(_core, module) {
  using namespace gristmill::python;
  module.doc() = "Configuration and shared memory of gristmill, in C++.";
  module.attr("__version__") = GRISTMILL_VERSION;
  bind_errors(module);
  bind_config(module);
  bind_trajectory_queue(module);
  bind_message_queue(module);
  bind_timer_queue(module);
  bind_run_board(module);
  bind_board_row(module);
  bind_profile(module);
  bind_memory_speed(module);
  bind_segments(module);
  bind_launch(module);
  bind_environments(module);
  bind_worker_pool(module);
  bind_worker_logs(module);
}
