#include "python/bindings/python_call.h"

#include <pybind11/pybind11.h>

#include <new>
#include <stdexcept>

namespace gristmill::python {

namespace py = pybind11;

bool read_arguments(const char* function, const char* const* names, int count, int required,
                    PyObject* const* arguments, Py_ssize_t given, PyObject* keywords, PyObject** values) {
  if (given > count) {
    PyErr_Format(PyExc_TypeError, "%s() takes at most %d arguments, got %zd", function, count, given);
    return false;
  }
  for (Py_ssize_t i = 0; i < given; ++i) values[i] = arguments[i];
  const Py_ssize_t named = keywords != nullptr ? PyTuple_GET_SIZE(keywords) : 0;
  for (Py_ssize_t k = 0; k < named; ++k) {
    PyObject* name = PyTuple_GET_ITEM(keywords, k);
    int at = 0;
    while (at < count && PyUnicode_CompareWithASCIIString(name, names[at]) != 0) ++at;
    if (at == count || values[at] != nullptr) {
      PyErr_Format(PyExc_TypeError,
                   at == count ? "%s() got an unexpected keyword argument '%U'"
                               : "%s() got multiple values for argument '%U'",
                   function, name);
      return false;
    }
    values[at] = arguments[given + k];
  }
  for (int i = 0; i < required; ++i) {
    if (values[i] != nullptr) continue;
    PyErr_Format(PyExc_TypeError, "%s() missing required argument '%s'", function, names[i]);
    return false;
  }
  return true;
}

PyObject* translate_exception() {
  try {
    throw;
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::invalid_argument& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

}  // namespace gristmill::python
