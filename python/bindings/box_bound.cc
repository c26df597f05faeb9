// A method of a box, bound to it: `box.update`. CPython's own bound methods are tracked by its garbage
// collector; made and dropped for one call, they cost half as much as the call.

#include <Python.h>
#include <structmember.h>

#include <cstddef>

#include "python/bindings/box_object.h"
#include "python/bindings/type_tables.h"

namespace gristmill::python {
namespace {

struct Bound {
  PyObject_HEAD vectorcallfunc call;
  PyObject* self;
  PyMethodDef* definition;
};

PyTypeObject* bound_type = nullptr;
// The one that was dropped last, for the next. Guarded by the GIL.
Bound* spare = nullptr;

PyObject* call_bound(PyObject* callable, PyObject* const* arguments, std::size_t flagged, PyObject* names) {
  const auto* bound = reinterpret_cast<Bound*>(callable);
  const Py_ssize_t count = PyVectorcall_NARGS(flagged);
  const PyMethodDef& definition = *bound->definition;
  const auto function = reinterpret_cast<void (*)()>(definition.ml_meth);
  if ((definition.ml_flags & METH_KEYWORDS) != 0) {
    return reinterpret_cast<_PyCFunctionFastWithKeywords>(function)(bound->self, arguments, count, names);
  }
  if (names != nullptr && PyTuple_GET_SIZE(names) > 0) {
    return PyErr_Format(PyExc_TypeError, "%s() takes no keyword arguments", definition.ml_name);
  }
  if ((definition.ml_flags & METH_FASTCALL) != 0) {
    return reinterpret_cast<_PyCFunctionFast>(function)(bound->self, arguments, count);
  }
  if (count > 0) {
    return PyErr_Format(PyExc_TypeError, "%s() takes no arguments (%zd given)", definition.ml_name, count);
  }
  return definition.ml_meth(bound->self, nullptr);
}

void dealloc(PyObject* object) {
  auto* bound = reinterpret_cast<Bound*>(object);
  PyObject* self = bound->self;
  if (spare == nullptr) {
    spare = bound;
  } else {
    PyTypeObject* type = Py_TYPE(object);
    type->tp_free(object);
    Py_DECREF(type);
  }
  Py_DECREF(self);  // last: it may run anything
}

PyObject* represent(PyObject* object) {
  const auto* bound = reinterpret_cast<Bound*>(object);
  return PyUnicode_FromFormat("<bound method %s of %R>", bound->definition->ml_name, bound->self);
}

PyObject* name_of(PyObject* object, void*) {
  return PyUnicode_FromString(reinterpret_cast<Bound*>(object)->definition->ml_name);
}

PyObject* doc_of(PyObject* object, void*) {
  return PyUnicode_FromString(reinterpret_cast<Bound*>(object)->definition->ml_doc);
}

PyObject* self_of(PyObject* object, void*) { return Py_NewRef(reinterpret_cast<Bound*>(object)->self); }

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Bound, call), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyGetSetDef properties[] = {{"__name__", &name_of, nullptr, nullptr, nullptr},
                            {"__doc__", &doc_of, nullptr, nullptr, nullptr},
                            {"__self__", &self_of, nullptr, nullptr, nullptr},
                            {nullptr, nullptr, nullptr, nullptr, nullptr}};

}  // namespace

PyObject* bind_method(PyMethodDef* definition, PyObject* self) {
  Bound* bound = spare;
  if (bound != nullptr) {
    spare = nullptr;
    // Its type was not let go of.
    Py_SET_REFCNT(reinterpret_cast<PyObject*>(bound), 1);
  } else {
    bound = PyObject_New(Bound, bound_type);
    if (bound == nullptr) return nullptr;
    bound->call = &call_bound;
  }
  bound->self = Py_NewRef(self);
  bound->definition = definition;
  return reinterpret_cast<PyObject*>(bound);
}

void make_bound_type() {
  PyType_Slot slots[] = {{Py_tp_dealloc, slot(&dealloc)}, {Py_tp_call, slot(&PyVectorcall_Call)},
                         {Py_tp_repr, slot(&represent)},  {Py_tp_members, members},
                         {Py_tp_getset, properties},      {0, nullptr}};
  PyType_Spec spec = {"gristmill._box.BoundMethod", sizeof(Bound), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                      slots};
  bound_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (bound_type == nullptr) throw py::error_already_set();
}

}  // namespace gristmill::python
