// The type gristmill._box.BoxBase: its fields as attributes, and its life.

#include <Python.h>
#include <structmember.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>

#include "python/bindings/box_object.h"
#include "python/bindings/box_quick.h"
#include "python/bindings/type_tables.h"

namespace gristmill::python {
namespace {

struct BoxObject {
  PyObject_HEAD std::shared_ptr<BoxState> state;  // null: not open yet, or closed
};

PyTypeObject* box_type = nullptr;
// gristmill.Box itself: it overrides none of the methods that are called all the time, which need no
// look-up then.
PyTypeObject* plain_type = nullptr;
PyObject* closed_error = nullptr;
constexpr std::size_t kMaxWords = 1 + kMaxScalarCapacity / 8;

BoxObject* as_box(PyObject* self) { return reinterpret_cast<BoxObject*>(self); }

PyObject* closed() {
  PyErr_SetString(closed_error, "the box is closed");
  return nullptr;
}

PyObject* read_field(const BoxState& state, const BoxField& field) {
  if (field.array >= 0) return guarded([&] { return copy_of(state, field).release().ptr(); });
  if (field.words == 1) [[likely]] {
    const std::uint64_t word = state.box->read_word(field.word);
    return object_of(field, {&word, 1});
  }
  std::array<std::uint64_t, kMaxWords> words;
  state.box->read_words(field.word, {words.data(), field.words});
  return text_of(field, {words.data(), field.words});
}

PyObject* box_getattro(PyObject* self, PyObject* name) {
  const BoxState* state = as_box(self)->state.get();
  if (state != nullptr) {
    if (const BoxField* field = state->find(name)) return read_field(*state, *field);
    if (Py_TYPE(self) == plain_type) {
      for (const BoxMethod& method : box_methods()) {
        if (name == method.name) return bind_method(method.definition, self);
      }
    }
  }
  PyObject* found = PyObject_GenericGetAttr(self, name);
  if (found != nullptr || PyErr_ExceptionMatches(PyExc_AttributeError) == 0) return found;
  if (state != nullptr) {
    if (const BoxField* field = state->find_text(name)) {
      PyErr_Clear();
      return read_field(*state, *field);
    }
  }
  PyErr_Clear();
  PyObject* rest = PyUnicode_InternFromString("_get_other");
  PyObject* handler = PyObject_GenericGetAttr(self, rest);
  Py_DECREF(rest);
  if (handler == nullptr) return nullptr;
  found = PyObject_CallOneArg(handler, name);
  Py_DECREF(handler);
  return found;
}

bool write_field(const std::shared_ptr<BoxState>& shared, const BoxField& field, PyObject* value) {
  std::uint64_t word = 0;
  if (!shared->box->read_only() && plain_word_of(field, value, &word)) [[likely]] {
    if (shared->box->write_word(field.word, word, Deadline::now()).outcome == Box::PublishOutcome::kOk)
        [[likely]] {
      return true;
    }
  }
  if (QuickChanges quick(*shared); field.words != 1 && quick.add(field, value)) {
    std::uint64_t version = 0;
    if (const auto done = quick.commit(shared, &version); done != QuickChanges::Committed::kNot) {
      return done == QuickChanges::Committed::kYes;
    }
  }
  const std::shared_ptr<BoxState> held = shared;  // it may be closed while this waits, or was meanwhile
  if (held == nullptr) {
    closed();
    return false;
  }
  PyObject* ok = guarded([&] {
    Changes changes(*held);
    changes.add(field, value);
    changes.commit(Deadline::never());
    return Py_NewRef(Py_None);
  });
  Py_XDECREF(ok);
  return ok != nullptr;
}

int box_setattro(PyObject* self, PyObject* name, PyObject* value) {
  const std::shared_ptr<BoxState>& state = as_box(self)->state;
  const BoxField* field = nullptr;
  if (state != nullptr) {
    field = state->find(name);
    if (field == nullptr) field = state->find_text(name);
  }
  if (field != nullptr && value != nullptr) return write_field(state, *field, value) ? 0 : -1;
  const char* text = PyUnicode_AsUTF8(name);
  if (text == nullptr) return -1;
  if (text[0] == '_') return PyObject_GenericSetAttr(self, name, value);
  if (value == nullptr) {
    PyErr_Format(PyExc_AttributeError, "the fields of a box cannot be deleted: '%U'", name);
    return -1;
  }
  PyObject* done = PyObject_CallMethod(self, "_set_other", "OO", name, value);
  Py_XDECREF(done);
  return done != nullptr ? 0 : -1;
}

PyObject* box_version(PyObject* self, void*) {
  const BoxState* state = as_box(self)->state.get();
  return state == nullptr ? closed() : PyLong_FromUnsignedLongLong(state->box->version());
}

PyObject* box_is_closed(PyObject* self, void*) { return PyBool_FromLong(as_box(self)->state == nullptr); }

PyObject* box_new(PyTypeObject* type, PyObject*, PyObject*) {
  PyObject* self = type->tp_alloc(type, 0);
  if (self != nullptr) new (&as_box(self)->state) std::shared_ptr<BoxState>();
  return self;
}

void box_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  as_box(self)->state.~shared_ptr();
  type->tp_free(self);
  Py_DECREF(type);
}

int box_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  return 0;
}

PyGetSetDef properties[] = {{"version", &box_version, nullptr, "The newest version.", nullptr},
                            {"closed", &box_is_closed, nullptr, "Whether close() was called here.", nullptr},
                            {nullptr, nullptr, nullptr, nullptr, nullptr}};

std::size_t slot_of(const PyObject* name, std::size_t mask) {
  return (reinterpret_cast<std::uintptr_t>(name) >> 4) * 0x9E3779B97F4A7C15ull >> 32 & mask;
}

}  // namespace

PyObject* box_close(PyObject* self, PyObject*) {
  as_box(self)->state.reset();
  Py_RETURN_NONE;
}

const std::shared_ptr<BoxState>* open_state_of(PyObject* self) {
  const std::shared_ptr<BoxState>& state = as_box(self)->state;
  if (state != nullptr) [[likely]]
    return &state;
  closed();
  return nullptr;
}

BoxState::~BoxState() {
  for (const BoxField& field : fields) {
    Py_XDECREF(field.name);
    Py_XDECREF(field.dtype);
    Py_XDECREF(field.seen_as);
  }
  Py_XDECREF(snapshot_type);
}

void BoxState::index() {
  std::size_t size = 8;
  while (size < fields.size() * 4) size *= 2;
  table.assign(size, -1);
  for (std::size_t i = 0; i < fields.size(); ++i) {
    std::size_t at = slot_of(fields[i].name, size - 1);
    while (table[at] >= 0) at = (at + 1) & (size - 1);
    table[at] = static_cast<std::int16_t>(i);
  }
}

const BoxField* BoxState::find(PyObject* name) const {
  const std::size_t mask = table.size() - 1;
  for (std::size_t at = slot_of(name, mask); table[at] >= 0; at = (at + 1) & mask) {
    const BoxField& field = fields[static_cast<std::size_t>(table[at])];
    if (field.name == name) return &field;
  }
  return nullptr;
}

const BoxField* BoxState::find_text(PyObject* name) const {
  if (!PyUnicode_Check(name)) return nullptr;
  for (const BoxField& field : fields) {
    if (PyUnicode_Compare(field.name, name) == 0) return &field;
  }
  return nullptr;
}

const std::shared_ptr<BoxState>& state_of(const py::handle& box) {
  if (PyObject_TypeCheck(box.ptr(), box_type) == 0) {
    throw py::type_error("expected a gristmill.Box, got " + std::string(py::str(py::type::of(box))));
  }
  const std::shared_ptr<BoxState>& state = as_box(box.ptr())->state;
  if (state == nullptr) raise_box_closed();
  return state;
}

void raise_box_closed() {
  closed();
  throw py::error_already_set();
}

void set_state(const py::handle& box, std::shared_ptr<BoxState> state) {
  if (PyObject_TypeCheck(box.ptr(), box_type) == 0) throw py::type_error("expected a gristmill.Box");
  as_box(box.ptr())->state = std::move(state);
}

void add_box_type(py::module_& module) {
  closed_error = PyErr_NewExceptionWithDoc(
      "gristmill._box.BoxClosedError", "The box was closed in this process.", PyExc_RuntimeError, nullptr);
  module.attr("BoxClosedError") = py::reinterpret_borrow<py::object>(closed_error);
  PyType_Slot slots[] = {{Py_tp_doc, const_cast<char*>("What gristmill.Box is made of.")},
                         {Py_tp_new, slot(&box_new)},
                         {Py_tp_dealloc, slot(&box_dealloc)},
                         {Py_tp_traverse, slot(&box_traverse)},
                         {Py_tp_getattro, slot(&box_getattro)},
                         {Py_tp_setattro, slot(&box_setattro)},
                         {Py_tp_methods, box_method_table()},
                         {Py_tp_getset, properties},
                         {0, nullptr}};
  PyType_Spec spec = {"gristmill._box.BoxBase", sizeof(BoxObject), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};
  box_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (box_type == nullptr) throw py::error_already_set();
  make_bound_type();
  module.def("set_plain_type",
             [](const py::type& type) { plain_type = reinterpret_cast<PyTypeObject*>(type.ptr()); });
  module.attr("BoxBase") = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(box_type));
}

}  // namespace gristmill::python
