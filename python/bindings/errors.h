#pragma once

#include <Python.h>

#include <cstring>
#include <string>

namespace gristmill::python {

// Sets an exception whose text may hold bytes of anybody's: what is not UTF-8 is escaped. Needs the GIL.
inline void set_error(PyObject* type, const char* what) {
  PyObject* text = PyUnicode_DecodeUTF8(what, static_cast<Py_ssize_t>(std::strlen(what)), "backslashreplace");
  if (text == nullptr) return;
  PyErr_SetObject(type, text);
  Py_DECREF(text);
}

// Throws gristmill.QueueClosed.
[[noreturn]] void raise_closed(const std::string& what);
// Throws TimeoutError.
[[noreturn]] void raise_timeout(const std::string& what);

}  // namespace gristmill::python
