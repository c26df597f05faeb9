// NumPy arrays and a box's fields, without NumPy's Python code.

#include "python/bindings/box_object.h"

namespace gristmill::python {

std::byte* plain_memory(const BoxField& field, PyObject* value, bool writeable) {
  if (!py::isinstance<py::array>(value)) return nullptr;
  const auto array = py::reinterpret_borrow<py::array>(value);
  // One dtype, one object, nearly always; whatever else is equal takes the long way.
  if (array.dtype().ptr() != field.dtype || (array.flags() & py::array::c_style) == 0) return nullptr;
  if (array.ndim() != static_cast<py::ssize_t>(field.shape.size())) return nullptr;
  for (std::size_t i = 0; i < field.shape.size(); ++i) {
    if (array.shape()[i] != field.shape[i]) return nullptr;
  }
  if (writeable && !array.writeable()) return nullptr;
  // An empty array may have no memory.
  static std::byte nothing{};
  auto* memory = static_cast<std::byte*>(const_cast<void*>(array.data()));
  return memory != nullptr ? memory : &nothing;
}

py::object new_array(const BoxField& field, std::vector<std::byte*>* out) {
  py::array array(py::reinterpret_borrow<py::dtype>(field.dtype), field.shape);
  out->push_back(static_cast<std::byte*>(array.mutable_data()));
  return array;
}

py::object view_into(const BoxField& field, const std::byte* data, const py::handle& base) {
  py::array array(py::reinterpret_borrow<py::dtype>(field.dtype), field.shape, data, base);
  // As pybind11 does it for Eigen's views; ndarray.setflags() is a Python call.
  py::detail::array_proxy(array.ptr())->flags &= ~py::detail::npy_api::NPY_ARRAY_WRITEABLE_;
  return array;
}

}  // namespace gristmill::python
