#include <pybind11/stl.h>

#include "python/bindings/bindings.h"
#include "python/bindings/memory_region.h"
#include "python/bindings/message_batch.h"
#include "python/bindings/pickling.h"
#include "python/bindings/queue_object.h"

namespace gristmill::python {

void bind_message_queue(py::module_& module) {
  PyTypeObject* type = make_queue_type();
  if (type == nullptr || !init_memory_region() || !init_pickling() || !init_batch(module.ptr())) {
    throw py::error_already_set();
  }
  const auto made = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(type));
  bind_queue_rest(made);
  module.attr("MessageQueue") = made;
}

}  // namespace gristmill::python
