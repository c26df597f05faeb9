#include "python/bindings/queue_arguments.h"

#include <chrono>
#include <string_view>

#include "python/bindings/python_call.h"
#include "python/bindings/queue_object.h"

namespace gristmill::python {

bool read_seconds(PyObject* value, double& seconds) {
  if (value == Py_None) {
    seconds = kForEver;
    return true;
  }
  seconds = PyFloat_AsDouble(value);
  if (seconds == -1.0 && PyErr_Occurred()) return false;
  if (seconds >= 0) return true;
  PyErr_Format(PyExc_ValueError,
               "timeout is %S; expected seconds, zero or more, or None to wait without limit", value);
  return false;
}

bool read_max(PyObject* value, std::int64_t& max) {
  if (value == nullptr || value == Py_None) return true;
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
  if (number == -1 && PyErr_Occurred()) return false;
  if (overflow < 0 || (overflow == 0 && number < 1)) {
    PyErr_Format(PyExc_ValueError, "max_messages_to_get is %S; expected at least 1", value);
    return false;
  }
  max = overflow > 0 ? kAll : number;
  return true;
}

Deadline Patience::deadline() const {
  if (!block) return Deadline::now();
  return seconds == kForEver ? Deadline::never() : Deadline::in(std::chrono::duration<double>(seconds));
}

bool QueueCall::read(QueueObject& self, const char* function, std::span<const char* const> names,
                     int required, PyObject** values, Patience& patience) const {
  patience.seconds = self.default_timeout;
  // One object alone is most calls.
  if (given == 1 && required == 1 && keywords == nullptr) {
    values[0] = arguments[0];
    return is_open(self);
  }
  if ((given > 0 || keywords != nullptr || required > 0) &&
      !read_arguments(function, names.data(), static_cast<int>(names.size()), required, arguments, given,
                      keywords, values)) {
    return false;
  }
  if (!is_open(self)) return false;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (values[i] == nullptr) continue;
    const std::string_view name(names[i]);
    if (name == "block" && values[i] != Py_True) {
      const int truth = PyObject_IsTrue(values[i]);
      if (truth < 0) return false;
      patience.block = truth != 0;
    } else if (name == "timeout" && patience.block && !read_seconds(values[i], patience.seconds)) {
      return false;
    }
  }
  return true;
}

}  // namespace gristmill::python
