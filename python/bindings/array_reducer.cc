#include "python/bindings/array_reducer.h"

#include <pybind11/pybind11.h>

#include "python/bindings/message_arrays.h"
#include "python/bindings/message_form.h"
#include "python/bindings/type_tables.h"

namespace gristmill::python {
namespace {

namespace py = pybind11;

// Exports a buffer of the length of the array's elements in a row, because pickle takes only such buffers out
// of band. Nobody reads through it: the pickler's sink asks for the array instead.
struct StridedSource {
  PyObject_HEAD PyObject* array;
  Py_ssize_t bytes;
};

PyTypeObject* source_type = nullptr;

int source_getbuffer(PyObject* self, Py_buffer* view, int flags) {
  auto* source = reinterpret_cast<StridedSource*>(self);
  void* data = reinterpret_cast<py::detail::PyArray_Proxy*>(source->array)->data;
  return PyBuffer_FillInfo(view, self, data, source->bytes, 0, flags);
}

void source_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  Py_CLEAR(reinterpret_cast<StridedSource*>(self)->array);
  type->tp_free(self);
  Py_DECREF(type);
}

py::object source_of(const py::object& array, Py_ssize_t bytes) {
  auto* source = reinterpret_cast<StridedSource*>(source_type->tp_alloc(source_type, 0));
  if (source == nullptr) throw py::error_already_set();
  source->array = py::object(array).release().ptr();
  source->bytes = bytes;
  return py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(source));
}

// NumPy's own function that makes an array of a buffer.
PyObject* rebuild() {
  static PyObject* found =
      py::tuple(py::module_::import("numpy").attr("empty")(1).attr("__reduce_ex__")(5))[0]
          .cast<py::object>()
          .release()
          .ptr();
  return found;
}

PyObject* reduce(PyObject*, PyObject* object) {
  try {
    const auto array = py::reinterpret_borrow<py::object>(object);
    const int flags = reinterpret_cast<const py::detail::PyArray_Proxy*>(object)->flags;
    const auto bytes = array.attr("nbytes").cast<Py_ssize_t>();
    if ((flags & (kCContiguous | kFContiguous)) != 0 || bytes < static_cast<Py_ssize_t>(kPartBytes) ||
        array.attr("dtype").attr("hasobject").cast<bool>()) {
      return array.attr("__reduce_ex__")(5).release().ptr();
    }
    const auto buffer =
        py::reinterpret_steal<py::object>(PyPickleBuffer_FromObject(source_of(array, bytes).ptr()));
    if (!buffer) throw py::error_already_set();
    return py::make_tuple(py::handle(rebuild()),
                          py::make_tuple(buffer, array.attr("dtype"), array.attr("shape"), "C"))
        .release()
        .ptr();
  } catch (py::error_already_set& error) {
    error.restore();
    return nullptr;
  }
}

}  // namespace

PyObject* array_reducer() {
  static PyMethodDef method = {"reduce_array", &reduce, METH_O, nullptr};
  static PyObject* made = PyCFunction_New(&method, nullptr);
  return made;
}

PyObject* strided_array_of(PyObject* exporter) {
  if (exporter == nullptr || Py_TYPE(exporter) != source_type) return nullptr;
  return reinterpret_cast<StridedSource*>(exporter)->array;
}

bool init_array_reducer() {
  static PyType_Slot slots[] = {
      {Py_tp_dealloc, slot(&source_dealloc)}, {Py_bf_getbuffer, slot(&source_getbuffer)}, {0, nullptr}};
  static PyType_Spec spec = {"gristmill._core.StridedSource", sizeof(StridedSource), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  source_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return source_type != nullptr;
}

}  // namespace gristmill::python
