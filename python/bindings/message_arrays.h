#pragma once

// NumPy arrays in messages, through pybind11's table of NumPy's functions. Everything here needs the GIL.

#include <Python.h>
#include <pybind11/numpy.h>

#include <cstddef>

namespace gristmill::python {

// NumPy's flags, part of its ABI.
inline constexpr int kCContiguous = 1;
inline constexpr int kFContiguous = 2;
inline constexpr int kWriteable = 0x400;

// Imports NumPy at the first call.
const pybind11::detail::npy_api* numpy();

// Whether it is exactly NumPy's array type. Imports NumPy only when it is there already.
bool is_array_type(PyTypeObject* type);

// A type number of a number or bool, of this machine's.
inline bool is_number(int type) {
  constexpr int kHalf = 23;
  constexpr int kLastNumber = 16;  // complex long double
  return (type >= 0 && type <= kLastNumber) || type == kHalf;
}

// An array's elements in C order into `to`. Returns false with an exception set.
bool copy_strided(PyObject* array, std::byte* to);

// A new array of `bytes` bytes at `data`, or nullptr with an exception set. owner: keeps them, so that the
// array looks into them; nullptr: they are copied.
PyObject* make_array(pybind11::dtype dtype, int dimensions, const Py_ssize_t* shape, const std::byte* data,
                     std::size_t bytes, bool fortran, PyObject* owner);

}  // namespace gristmill::python
