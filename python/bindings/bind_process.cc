#include <dlfcn.h>

#include <thread>

#include "python/bindings/bindings.h"

namespace gristmill::python {

void bind_process(py::module_& module) {
  module.def(
      "preload",
      [](std::string path) {
        // A thread of C++, so that loading needs no GIL. A library that does not load is reported
        // when it is imported.
        std::thread([path = std::move(path)] { dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL); }).detach();
      },
      py::arg("path"),
      "Loads a shared library, and what it needs, in the background; its import waits for it.");
}

}  // namespace gristmill::python
