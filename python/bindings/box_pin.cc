// The type gristmill._box.PinBase: a version of a box, in place.

#include <Python.h>

#include <new>
#include <utility>

#include "python/bindings/arrays.h"
#include "python/bindings/box_object.h"
#include "python/bindings/type_tables.h"

namespace gristmill::python {
namespace {

// Everything that looks into the version keeps this object: state and pin end with the last of them.
struct PinObject {
  PyObject_HEAD std::shared_ptr<BoxState> state;  // null: not made by new_pin
  Box::Pin pin;
  std::vector<std::uint64_t> words;
  PyObject* names;  // the tuple of fields that `with` hands out
};

PyTypeObject* pin_type = nullptr;    // PinBase
PyTypeObject* plain_type = nullptr;  // gristmill.BoxPin

PinObject* as_pin(PyObject* self) { return reinterpret_cast<PinObject*>(self); }

PyObject* pinned_value(PyObject* self, PyObject* name) {
  PinObject& held = *as_pin(self);
  return guarded([&]() -> PyObject* {
    if (held.state == nullptr) throw py::type_error("a pin is made by Box.pin()");
    const BoxField* known = held.state->find(name);
    const BoxField& field = known != nullptr ? *known : field_of(*held.state, name);
    if (!held.pin) throw py::value_error("the pin is released");
    if (field.array < 0) {
      return object_of(field, std::span<const std::uint64_t>(held.words).subspan(field.word, field.words));
    }
    return view_into(field, held.pin.field(static_cast<std::size_t>(field.array)), self).release().ptr();
  });
}

PyObject* pin_enter(PyObject* self, PyObject*) {
  PyObject* names = as_pin(self)->names;
  const Py_ssize_t count = names != nullptr ? PyTuple_GET_SIZE(names) : 0;
  if (count == 0) return Py_NewRef(self);
  if (count == 1) return pinned_value(self, PyTuple_GET_ITEM(names, 0));
  PyObject* values = PyTuple_New(count);
  for (Py_ssize_t i = 0; values != nullptr && i < count; ++i) {
    PyObject* value = pinned_value(self, PyTuple_GET_ITEM(names, i));
    if (value == nullptr) {
      Py_CLEAR(values);
    } else {
      PyTuple_SET_ITEM(values, i, value);
    }
  }
  return values;
}

PyObject* pin_release(PyObject* self, PyObject*) {
  as_pin(self)->pin.release();
  Py_RETURN_NONE;
}

PyObject* pin_exit(PyObject* self, PyObject* const*, Py_ssize_t) { return pin_release(self, nullptr); }

PyObject* pin_version(PyObject* self, void*) {
  return PyLong_FromUnsignedLongLong(as_pin(self)->pin.version());
}

PyObject* pin_released(PyObject* self, void*) { return PyBool_FromLong(!as_pin(self)->pin); }

PyObject* pin_fields(PyObject* self, void*) {
  PinObject& held = *as_pin(self);
  return guarded([&]() -> PyObject* {
    return (held.state != nullptr ? specs_to_python(held.state->box->spec()) : py::dict()).release().ptr();
  });
}

PyObject* make(PyTypeObject* type, PyObject*, PyObject*) {
  PyObject* self = type->tp_alloc(type, 0);
  if (self == nullptr) return nullptr;
  PinObject& held = *as_pin(self);
  new (&held.state) std::shared_ptr<BoxState>();
  new (&held.pin) Box::Pin();
  new (&held.words) std::vector<std::uint64_t>();
  held.names = nullptr;
  return self;
}

void dealloc(PyObject* self) {
  PinObject& held = *as_pin(self);
  PyTypeObject* type = Py_TYPE(self);
  // The pin looks into the box, which the state keeps.
  std::destroy_at(&held.pin);
  std::destroy_at(&held.words);
  std::destroy_at(&held.state);
  Py_XDECREF(held.names);
  type->tp_free(self);
  Py_DECREF(type);
}

PyMethodDef methods[] = {
    {"release", &pin_release, METH_NOARGS, "Unpins. Idempotent. Arrays must not be used after it."},
    {"__enter__", &pin_enter, METH_NOARGS,
     "The array of pin('weights'), a tuple of arrays of pin('a', 'b'), and of pin() the pin itself."},
    {"__exit__", method(&pin_exit), METH_FASTCALL, "Unpins."},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef properties[] = {{"version", &pin_version, nullptr, "The version that is pinned.", nullptr},
                            {"released", &pin_released, nullptr, "Whether it is unpinned again.", nullptr},
                            {"fields", &pin_fields, nullptr, "The arrays: {name: (dtype, shape)}.", nullptr},
                            {nullptr, nullptr, nullptr, nullptr, nullptr}};

}  // namespace

PyObject* new_pin(const std::shared_ptr<BoxState>& state, PyObject* const* names, Py_ssize_t count) {
  if (state->box->read_only()) {
    PyErr_Format(PyExc_PermissionError, "box %s is attached read-only, and a pin is a write: use read_into()",
                 state->box->name().c_str());
    return nullptr;
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (state->find(names[i]) != nullptr) continue;
    PyObject* known = guarded([&] {
      field_of(*state, names[i]);
      return Py_None;
    });
    if (known == nullptr) return nullptr;
  }
  PyObject* self = make(plain_type != nullptr ? plain_type : pin_type, nullptr, nullptr);
  if (self == nullptr) return nullptr;
  PinObject& held = *as_pin(self);
  if (count > 0) {
    held.names = PyTuple_New(count);
    for (Py_ssize_t i = 0; held.names != nullptr && i < count; ++i) {
      PyTuple_SET_ITEM(held.names, i, Py_NewRef(names[i]));
    }
  }
  PyObject* done = guarded([&]() -> PyObject* {
    if (count > 0 && held.names == nullptr) throw py::error_already_set();
    held.words.resize(state->words);
    held.pin = state->box->pin(held.words);
    held.state = state;
    return self;
  });
  if (done == nullptr) Py_DECREF(self);
  return done;
}

void add_pin_type(py::module_& module) {
  PyType_Slot slots[] = {
      {Py_tp_doc, const_cast<char*>("What gristmill.BoxPin is made of. Made by Box.pin().")},
      {Py_tp_new, slot(&make)},
      {Py_tp_dealloc, slot(&dealloc)},
      {Py_mp_subscript, slot(&pinned_value)},
      {Py_tp_methods, methods},
      {Py_tp_getset, properties},
      {0, nullptr}};
  PyType_Spec spec = {"gristmill._box.PinBase", sizeof(PinObject), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
  pin_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (pin_type == nullptr) throw py::error_already_set();
  module.attr("PinBase") = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(pin_type));
  module.def("set_pin_type", [](const py::type& type) {
    if (PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(type.ptr()), pin_type) == 0) {
      throw py::type_error("expected a subclass of PinBase");
    }
    plain_type = reinterpret_cast<PyTypeObject*>(type.inc_ref().ptr());
  });
}

}  // namespace gristmill::python
