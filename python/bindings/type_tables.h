#pragma once

// The tables of a type that is written against Python's C interface hold functions of any convention.

#include <Python.h>

namespace gristmill::python {

template <class Function>
PyCFunction method(Function* function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

template <class Function>
void* slot(Function* function) {
  return reinterpret_cast<void*>(function);
}

}  // namespace gristmill::python
