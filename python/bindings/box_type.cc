// The type gristmill._box.BoxBase: attributes, update() and snapshot().

#include <Python.h>
#include <structmember.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>

#include "python/bindings/box_object.h"

namespace gristmill::python {
namespace {

struct BoxObject {
  PyObject_HEAD std::shared_ptr<BoxState> state;  // null: not open yet, or closed
};

PyTypeObject* box_type = nullptr;
// gristmill.Box itself: it overrides none of the methods below, which need no look-up then.
PyTypeObject* plain_type = nullptr;
PyObject* update_name = nullptr;
PyObject* snapshot_name = nullptr;
PyObject* box_update(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names);
PyObject* box_snapshot(PyObject* self, PyObject*);
PyObject* box_close(PyObject* self, PyObject*);
PyObject* closed_error = nullptr;
constexpr std::size_t kMaxWords = 1 + kMaxScalarCapacity / 8;

PyMethodDef methods[] = {
    {"update", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&box_update)),
     METH_FASTCALL | METH_KEYWORDS,
     "update(**fields) -> int\n\nWrites several fields as one new version, and returns its number."},
    {"snapshot", &box_snapshot, METH_NOARGS,
     "A named tuple of all fields of one version, arrays copied, with its `version` as the last."},
    {"close", &box_close, METH_NOARGS,
     "Lets go of the box. Pins and arrays that were handed out stay valid. Idempotent."},
    {nullptr, nullptr, 0, nullptr}};

BoxObject* as_box(PyObject* self) { return reinterpret_cast<BoxObject*>(self); }

// Runs what may throw; null, and the exception set, when it did.
template <class Body>
PyObject* guarded(Body&& body) noexcept {
  try {
    return body();
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (const py::builtin_exception& error) {
    error.set_error();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

PyObject* closed() {
  PyErr_SetString(closed_error, "the box is closed");
  return nullptr;
}

// As object_of. Texts change seldom: the last one's object serves again.
PyObject* text_of(const BoxField& field, std::span<const std::uint64_t> words) {
  const std::size_t used = 1 + (std::min<std::uint64_t>(words[0], field.capacity) + 7) / 8;
  if (field.seen_as != nullptr && field.seen.size() == used &&
      std::memcmp(field.seen.data(), words.data(), used * sizeof words[0]) == 0) {
    return Py_NewRef(field.seen_as);
  }
  PyObject* object = object_of(field, words);
  if (object != nullptr) {
    field.seen.assign(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(used));
    Py_XSETREF(field.seen_as, Py_NewRef(object));
  }
  return object;
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
      if (name == update_name) return PyCFunction_New(&methods[0], self);
      if (name == snapshot_name) return PyCFunction_New(&methods[1], self);
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

// A moment that has passed for ever: try, and do not block.
const Deadline& at_once() {
  static const Deadline past = Deadline::now();
  return past;
}

bool write_field(const std::shared_ptr<BoxState>& shared, const BoxField& field, PyObject* value) {
  const BoxState& state = *shared;
  if (field.array < 0 && field.words == 1 && !state.box->read_only()) [[likely]] {
    std::uint64_t word = 0;
    if (word_of(field, value, &word) < 0) return false;
    const Box::Words change{field.word, {&word, 1}};
    const auto done = state.box->update({&change, 1}, {}, at_once());
    if (done.outcome == Box::PublishOutcome::kOk) [[likely]]
      return true;
  }
  const std::shared_ptr<BoxState> held = shared;  // it may be closed while this waits
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

// update(**fields) -> version
PyObject* box_update(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  const std::shared_ptr<BoxState>& shared = as_box(self)->state;
  if (shared == nullptr) return closed();
  const Py_ssize_t given = names != nullptr ? PyTuple_GET_SIZE(names) : 0;
  if (count != 0 || given == 0) {
    PyErr_SetString(PyExc_TypeError, "update() takes fields by keyword, such as update(lr=1e-3, step=7)");
    return nullptr;
  }
  const BoxState& state = *shared;
  constexpr Py_ssize_t kMost = 16;
  if (given <= kMost && !state.box->read_only()) {
    std::array<std::uint64_t, kMost> values;
    std::array<Box::Words, kMost> changes;
    Py_ssize_t done = 0;
    for (; done < given; ++done) {
      const BoxField* field = state.find(PyTuple_GET_ITEM(names, done));
      if (field == nullptr || field->array >= 0 || field->words != 1) break;
      const auto at = static_cast<std::size_t>(done);
      if (word_of(*field, arguments[done], &values[at]) < 0) return nullptr;
      changes[at] = {field->word, {&values[at], 1}};
    }
    if (done == given) {
      const auto result = state.box->update({changes.data(), static_cast<std::size_t>(given)}, {}, at_once());
      if (result.outcome == Box::PublishOutcome::kOk) return PyLong_FromUnsignedLongLong(result.version);
    }
  }
  const std::shared_ptr<BoxState> held = shared;
  return guarded([&]() -> PyObject* {
    py::dict values;
    for (Py_ssize_t i = 0; i < given; ++i) values[PyTuple_GET_ITEM(names, i)] = py::handle(arguments[i]);
    py::object all =
        py::reinterpret_steal<py::object>(PyObject_CallMethod(self, "_flatten", "O", values.ptr()));
    if (!all) throw py::error_already_set();
    Changes changes(*held);
    for (const auto& [key, value] : py::dict(all)) changes.add(field_of(*held, key), value.ptr());
    return PyLong_FromUnsignedLongLong(changes.commit(Deadline::never()));
  });
}

// A named tuple of every field, and `version`.
PyObject* box_snapshot(PyObject* self, PyObject*) {
  const std::shared_ptr<BoxState>& shared = as_box(self)->state;
  if (shared == nullptr) return closed();
  const std::shared_ptr<BoxState> held = shared;
  const BoxState& state = *held;
  constexpr std::size_t kFew = 128;
  std::array<std::uint64_t, kFew> few;
  std::vector<std::uint64_t> many;
  std::span<std::uint64_t> words(few.data(), std::min(kFew, state.box->words()));
  if (state.box->words() > kFew) {
    many.resize(state.box->words());
    words = many;
  }
  std::vector<py::object> arrays;
  std::uint64_t version = 0;
  if (state.box->spec().empty()) {
    version = state.box->read_words(0, words);
  } else {
    PyObject* ok = guarded([&] {
      std::vector<std::byte*> out;
      for (const FieldSpec& spec : state.box->spec()) {
        arrays.push_back(new_array(spec, &out));
      }
      py::gil_scoped_release release;
      version = state.box->read_into(out, words);
      return Py_None;
    });
    if (ok == nullptr) return nullptr;
  }
  auto* type = reinterpret_cast<PyTypeObject*>(state.snapshot_type);
  const auto count = static_cast<Py_ssize_t>(state.fields.size());
  PyObject* tuple = type->tp_alloc(type, count + 1);
  if (tuple == nullptr) return nullptr;
  for (Py_ssize_t i = 0; i < count; ++i) {
    const BoxField& field = state.fields[static_cast<std::size_t>(i)];
    PyObject* value = field.array >= 0  ? arrays[static_cast<std::size_t>(field.array)].release().ptr()
                      : field.words > 1 ? text_of(field, words.subspan(field.word, field.words))
                                        : object_of(field, words.subspan(field.word, field.words));
    if (value == nullptr) {
      Py_DECREF(tuple);
      return nullptr;
    }
    PyTuple_SET_ITEM(tuple, i, value);
  }
  PyTuple_SET_ITEM(tuple, count, PyLong_FromUnsignedLongLong(version));
  return tuple;
}

PyObject* box_version(PyObject* self, void*) {
  const BoxState* state = as_box(self)->state.get();
  return state == nullptr ? closed() : PyLong_FromUnsignedLongLong(state->box->version());
}

PyObject* box_is_closed(PyObject* self, void*) { return PyBool_FromLong(as_box(self)->state == nullptr); }

PyObject* box_close(PyObject* self, PyObject*) {
  as_box(self)->state.reset();
  Py_RETURN_NONE;
}

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

PyType_Slot slots[] = {{Py_tp_doc, const_cast<char*>("What gristmill.Box is made of.")},
                       {Py_tp_new, reinterpret_cast<void*>(&box_new)},
                       {Py_tp_dealloc, reinterpret_cast<void*>(&box_dealloc)},
                       {Py_tp_traverse, reinterpret_cast<void*>(&box_traverse)},
                       {Py_tp_getattro, reinterpret_cast<void*>(&box_getattro)},
                       {Py_tp_setattro, reinterpret_cast<void*>(&box_setattro)},
                       {Py_tp_methods, methods},
                       {Py_tp_getset, properties},
                       {0, nullptr}};

PyType_Spec spec = {"gristmill._box.BoxBase", sizeof(BoxObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};

std::size_t slot_of(const PyObject* name, std::size_t mask) {
  return (reinterpret_cast<std::uintptr_t>(name) >> 4) * 0x9E3779B97F4A7C15ull >> 32 & mask;
}

}  // namespace

BoxState::~BoxState() {
  for (const BoxField& field : fields) {
    Py_XDECREF(field.name);
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
  box_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (box_type == nullptr) throw py::error_already_set();
  update_name = PyUnicode_InternFromString("update");
  snapshot_name = PyUnicode_InternFromString("snapshot");
  module.def("set_plain_type",
             [](const py::type& type) { plain_type = reinterpret_cast<PyTypeObject*>(type.ptr()); });
  module.attr("BoxBase") = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(box_type));
}

}  // namespace gristmill::python
