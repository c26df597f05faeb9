#include "python/bindings/message_arrays.h"

#include <cstring>

#include "python/bindings/memory_region.h"
#include "python/bindings/message_form.h"

namespace gristmill::python {

namespace py = pybind11;
using NumpyApi = py::detail::npy_api;

const NumpyApi* numpy() {
  static const NumpyApi* api = nullptr;
  if (api == nullptr) api = &NumpyApi::get();
  return api;
}

bool is_array_type(PyTypeObject* type) {
  static PyTypeObject* array_type = nullptr;
  if (array_type != nullptr) return type == array_type;
  if (std::strcmp(type->tp_name, "numpy.ndarray") != 0) return false;
  array_type = numpy()->PyArray_Type_;
  return type == array_type;
}

bool copy_strided(PyObject* array, std::byte* to) {
  const auto* source = reinterpret_cast<const py::detail::PyArray_Proxy*>(array);
  PyObject* target =
      numpy()->PyArray_NewFromDescr_(numpy()->PyArray_Type_, Py_NewRef(source->descr), source->nd,
                                     source->dimensions, nullptr, to, kWriteable | kCContiguous, nullptr);
  if (target == nullptr) return false;
  const bool done = numpy()->PyArray_CopyInto_(target, array) == 0;
  Py_DECREF(target);
  return done;
}

PyObject* make_array(py::dtype dtype, int dimensions, const Py_ssize_t* shape, const std::byte* data,
                     std::size_t bytes, bool fortran, PyObject* owner) {
  // Small ones are NumPy's own, and copied even for a batch in place: that is cheaper than what keeps them.
  PyObject* base = nullptr;
  std::byte* at = nullptr;
  if (bytes >= kPartBytes && owner != nullptr) {
    base = Py_NewRef(owner);
    at = const_cast<std::byte*>(data);  // the queue's memory is this process's alone until released
  } else if (bytes >= kPartBytes) {
    base = new_region(bytes, &at);
    if (base == nullptr) return nullptr;
    copy_message(at, data, bytes);
  }
  const int flags = kWriteable | (fortran ? kFContiguous : kCContiguous);
  // Steals the dtype. Without data, any flag means Fortran order.
  PyObject* made =
      numpy()->PyArray_NewFromDescr_(numpy()->PyArray_Type_, dtype.release().ptr(), dimensions, shape,
                                     nullptr, at, at != nullptr ? flags : (fortran ? 1 : 0), nullptr);
  if (made == nullptr) {
    Py_XDECREF(base);
    return nullptr;
  }
  if (base != nullptr) {
    if (numpy()->PyArray_SetBaseObject_(made, base) != 0) {
      Py_DECREF(made);
      return nullptr;
    }
  } else if (bytes > 0) {
    std::memcpy(reinterpret_cast<py::detail::PyArray_Proxy*>(made)->data, data, bytes);
  }
  return made;
}

}  // namespace gristmill::python
