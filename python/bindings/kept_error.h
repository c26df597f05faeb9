#pragma once

// The exception that is set, kept aside while something else runs; set again at the end of the scope.

#include <Python.h>

namespace gristmill::python {

class KeptError {
 public:
  KeptError() { PyErr_Fetch(&type_, &value_, &traceback_); }
  ~KeptError() { PyErr_Restore(type_, value_, traceback_); }
  KeptError(const KeptError&) = delete;
  KeptError& operator=(const KeptError&) = delete;

  // The exception itself; borrowed. nullptr when none was set.
  PyObject* value() {
    if (type_ == nullptr) return nullptr;
    PyErr_NormalizeException(&type_, &value_, &traceback_);
    if (traceback_ != nullptr) PyException_SetTraceback(value_, traceback_);
    return value_;
  }

 private:
  PyObject* type_ = nullptr;
  PyObject* value_ = nullptr;
  PyObject* traceback_ = nullptr;
};

}  // namespace gristmill::python
