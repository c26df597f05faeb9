#pragma once

// How arrays that are not contiguous pickle: their elements go out of band, copied once into the queue.
// Pickle itself sends them within the pickle, copied twice. Needs the GIL.

#include <Python.h>

namespace gristmill::python {

// The reducer for exactly NumPy's array type, as a dispatch table has it; borrowed. nullptr with an exception
// set.
PyObject* array_reducer();

// The array whose elements `exporter`, the owner of a buffer that pickle hands out, stands for; borrowed.
// nullptr when it is of another kind.
PyObject* strided_array_of(PyObject* exporter);

// Makes the type. Returns false with an exception set.
bool init_array_reducer();

}  // namespace gristmill::python
