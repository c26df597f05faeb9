#pragma once

// Functions written against Python's C interface: their arguments, and C++ exceptions in them. Needs the GIL.

#include <Python.h>

#include <exception>

namespace gristmill::python {

// One call's arguments by position or name into values[0, count); missing ones stay null. False with
// TypeError set.
bool read_arguments(const char* function, const char* const* names, int count, int required,
                    PyObject* const* arguments, Py_ssize_t given, PyObject* keywords, PyObject** values);

// Runs `body`, which returns an object or nullptr with an exception set, and turns C++ exceptions into
// Python's.
PyObject* translate_exception();

template <class Body>
PyObject* guarded(Body&& body) {
  try {
    return body();
  } catch (const std::exception&) {
    return translate_exception();
  }
}

}  // namespace gristmill::python
