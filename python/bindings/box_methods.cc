// The methods of gristmill.Box that are called all the time, by CPython's fast calling convention.

#include <Python.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "python/bindings/box_object.h"
#include "python/bindings/box_quick.h"
#include "python/bindings/type_tables.h"
#include "python/bindings/waiting.h"

namespace gristmill::python {
namespace {

// update(**fields) -> version
PyObject* box_update(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  const auto* state = open_state_of(self);
  if (state == nullptr) return nullptr;
  const Py_ssize_t given = names != nullptr ? PyTuple_GET_SIZE(names) : 0;
  if (count != 0 || given == 0) {
    PyErr_SetString(PyExc_TypeError, "update() takes fields by keyword, such as update(lr=1e-3, step=7)");
    return nullptr;
  }
  {
    QuickChanges quick(**state);
    Py_ssize_t done = 0;
    for (; done < given; ++done) {
      const BoxField* field = (*state)->find(PyTuple_GET_ITEM(names, done));
      if (field == nullptr || !quick.add(*field, arguments[done])) break;
    }
    std::uint64_t version = 0;
    if (done == given) {
      const auto committed = quick.commit(*state, &version);
      if (committed == QuickChanges::Committed::kYes) return PyLong_FromUnsignedLongLong(version);
      if (committed == QuickChanges::Committed::kError) return nullptr;
    }
  }
  if (open_state_of(self) == nullptr) return nullptr;
  const std::shared_ptr<BoxState> held = *state;  // it may be closed while this waits
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

// A named tuple of what `words` and `arrays` hold, and of `version`.
PyObject* snapshot_of(const BoxState& state, std::span<const std::uint64_t> words,
                      std::vector<py::object>& arrays, std::uint64_t version) {
  auto* type = reinterpret_cast<PyTypeObject*>(state.snapshot_type);
  const auto count = static_cast<Py_ssize_t>(state.fields.size());
  auto* tuple = PyObject_GC_NewVar(PyTupleObject, type, count + 1);
  if (tuple == nullptr) return nullptr;
  for (Py_ssize_t i = 0; i <= count; ++i) {
    PyObject* value = nullptr;
    if (i == count) {
      value = PyLong_FromUnsignedLongLong(version);
    } else {
      const BoxField& field = state.fields[static_cast<std::size_t>(i)];
      value = field.array >= 0  ? arrays[static_cast<std::size_t>(field.array)].release().ptr()
              : field.words > 1 ? text_of(field, words.subspan(field.word, field.words))
                                : object_of(field, words.subspan(field.word, field.words));
    }
    PyTuple_SET_ITEM(reinterpret_cast<PyObject*>(tuple), i, value);
    if (value == nullptr) {
      for (Py_ssize_t rest = i + 1; rest <= count; ++rest) tuple->ob_item[rest] = nullptr;
      PyObject_GC_Track(tuple);
      Py_DECREF(tuple);
      return nullptr;
    }
  }
  PyObject_GC_Track(tuple);
  return reinterpret_cast<PyObject*>(tuple);
}

PyObject* box_snapshot(PyObject* self, PyObject*) {
  const auto* open = open_state_of(self);
  if (open == nullptr) return nullptr;
  const BoxState& state = **open;
  constexpr std::size_t kFew = 128;
  std::array<std::uint64_t, kFew> few;
  std::vector<std::uint64_t> many;
  std::vector<py::object> arrays;
  std::span<std::uint64_t> words(few.data(), std::min(kFew, state.words));
  if (state.words > kFew) {
    many.resize(state.words);
    words = many;
  }
  if (state.array_count == 0) [[likely]]
    return snapshot_of(state, words, arrays, state.box->read_words(0, words));
  const std::shared_ptr<BoxState> held = *open;  // it may be closed during the copy
  return guarded([&]() -> PyObject* {
    std::vector<std::byte*> out;
    for (const BoxField& field : held->fields) {
      if (field.array >= 0) arrays.push_back(new_array(field, &out));
    }
    const std::uint64_t version = [&] {
      py::gil_scoped_release release;
      return held->box->read_into(out, words);
    }();
    return snapshot_of(*held, words, arrays, version);
  });
}

// Of a call with the parameters `known`, the first `positional` of which may be given by position: the
// argument of each, or null. False: a TypeError is set.
template <std::size_t kCount>
bool arguments_of(const char* call, const std::array<const char*, kCount>& known, Py_ssize_t positional,
                  PyObject* const* arguments, Py_ssize_t count, PyObject* names,
                  std::array<PyObject*, kCount>* values) {
  values->fill(nullptr);
  if (count > positional) {
    PyErr_Format(PyExc_TypeError, "%s() takes %zd arguments by position, got %zd", call, positional, count);
    return false;
  }
  std::copy(arguments, arguments + count, values->begin());
  for (Py_ssize_t i = 0; names != nullptr && i < PyTuple_GET_SIZE(names); ++i) {
    PyObject* name = PyTuple_GET_ITEM(names, i);
    std::size_t at = 0;
    while (at < kCount && PyUnicode_CompareWithASCIIString(name, known[at]) != 0) ++at;
    if (at == kCount || (*values)[at] != nullptr) {
      PyErr_Format(PyExc_TypeError, "%s(): %s argument '%U'", call,
                   at == kCount ? "there is no" : "several values for", name);
      return false;
    }
    (*values)[at] = arguments[count + i];
  }
  if ((*values)[0] != nullptr) return true;
  PyErr_Format(PyExc_TypeError, "%s() needs '%s'", call, known[0]);
  return false;
}

std::optional<double> seconds_of(PyObject* value) {
  if (value == nullptr || value == Py_None) return std::nullopt;
  const double seconds = PyFloat_AsDouble(value);
  if (seconds == -1.0 && PyErr_Occurred() != nullptr) throw py::error_already_set();
  return seconds;
}

std::uint64_t wait_for_version(const BoxState& state, std::uint64_t seen, std::optional<double> timeout,
                               std::optional<double> spin) {
  std::optional<std::chrono::nanoseconds> spinning;
  if (spin) {
    constexpr double kLongest = 3600;
    spinning = std::chrono::nanoseconds(static_cast<std::int64_t>(std::clamp(*spin, 0.0, kLongest) * 1e9));
  }
  const auto version = wait_in_slices(
      deadline_of(timeout),
      [&](Deadline slice) {
        // What is left of the budget after a slice is the next one's.
        const auto budget = spinning;
        if (spinning) spinning = std::max(*spinning - kSignalSlice, std::chrono::nanoseconds(0));
        return state.box->watch(seen, slice, budget);
      },
      [](const std::optional<std::uint64_t>& newest) { return newest.has_value(); });
  if (version) return *version;
  PyErr_SetString(PyExc_TimeoutError,
                  ("box " + state.box->name() + " has no version after " + std::to_string(seen)).c_str());
  throw py::error_already_set();
}

// watch(version, timeout=None, *, spin=None) -> version
PyObject* box_watch(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  const auto* open = open_state_of(self);
  if (open == nullptr) return nullptr;
  std::array<PyObject*, 3> values;
  if (!arguments_of<3>("watch", {"version", "timeout", "spin"}, 2, arguments, count, names, &values)) {
    return nullptr;
  }
  const std::shared_ptr<BoxState> held = *open;
  return guarded([&]() -> PyObject* {
    const auto number = py::reinterpret_steal<py::object>(PyNumber_Index(values[0]));
    if (!number) throw py::error_already_set();
    const std::uint64_t seen = PyLong_AsUnsignedLongLong(number.ptr());
    if (PyErr_Occurred() != nullptr) throw py::error_already_set();
    const std::optional<double> timeout = seconds_of(values[1]), spin = seconds_of(values[2]);
    std::uint64_t version = held->box->version();
    // About a microsecond with the GIL held: letting go of it and the clocks would take as long.
    constexpr int kLooks = 64;
    for (int i = 0; spin && *spin > 0 && version <= seen && i < kLooks; ++i) {
      __builtin_ia32_pause();
      version = held->box->version();
    }
    if (version <= seen) version = wait_for_version(*held, seen, timeout, spin);
    return PyLong_FromUnsignedLongLong(version);
  });
}

// One field, or some, by a mapping, as they are. False, without an exception: it takes read_into().
bool add_target(const BoxState& state, PyObject* name, PyObject* value, std::vector<std::byte*>* out,
                std::size_t* bytes) {
  const BoxField* field = state.find(name);
  if (field == nullptr || field->array < 0) return false;
  std::byte* memory = plain_memory(*field, value, true);
  (*out)[static_cast<std::size_t>(field->array)] = memory;
  *bytes += field->bytes;
  return memory != nullptr;
}

// read_into(fields, out=None) -> version
PyObject* box_read_into(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  const auto* open = open_state_of(self);
  if (open == nullptr) return nullptr;
  std::array<PyObject*, 2> values;
  if (!arguments_of<2>("read_into", {"fields", "out"}, 2, arguments, count, names, &values)) return nullptr;
  const std::shared_ptr<BoxState> held = *open;
  return guarded([&]() -> PyObject* {
    std::vector<std::byte*> out(held->array_count, nullptr);
    std::size_t bytes = 0;
    bool quick = true;
    if (PyUnicode_Check(values[0])) {
      quick = values[1] != nullptr && add_target(*held, values[0], values[1], &out, &bytes);
    } else if (PyDict_CheckExact(values[0])) {
      PyObject *key = nullptr, *value = nullptr;
      for (Py_ssize_t at = 0; quick && PyDict_Next(values[0], &at, &key, &value) != 0;) {
        quick = add_target(*held, key, value, &out, &bytes);
      }
    } else {
      quick = false;
    }
    std::uint64_t version = 0;
    if (!quick) {
      py::dict targets;
      if (PyUnicode_Check(values[0])) {
        targets[values[0]] = values[1] != nullptr ? py::handle(values[1]) : py::handle(Py_None);
      } else {
        targets = py::dict(py::reinterpret_borrow<py::object>(values[0]));
      }
      version = read_into(*held, targets);
    } else if (bytes < kCopyWithoutGil) {
      version = held->box->read_into(out);
    } else {
      // The arguments keep the arrays, unless a mapping is changed meanwhile.
      const py::object kept =
          PyDict_CheckExact(values[0])
              ? py::reinterpret_steal<py::object>(PyDict_Values(values[0]))
              : py::reinterpret_borrow<py::object>(values[1] != nullptr ? values[1] : Py_None);
      py::gil_scoped_release release;
      version = held->box->read_into(out);
    }
    return PyLong_FromUnsignedLongLong(version);
  });
}

// pin(*fields) -> BoxPin
PyObject* box_pin(PyObject* self, PyObject* const* names, Py_ssize_t count) {
  const auto* open = open_state_of(self);
  return open == nullptr ? nullptr : new_pin(*open, names, count);
}

}  // namespace

PyMethodDef* box_method_table() {
  static PyMethodDef methods[] = {
      {"update", method(&box_update), METH_FASTCALL | METH_KEYWORDS,
       "update(**fields) -> int\n\nWrites several fields as one new version, and returns its number."},
      {"snapshot", &box_snapshot, METH_NOARGS,
       "A named tuple of all fields of one version, arrays copied, with its `version` as the last."},
      {"watch", method(&box_watch), METH_FASTCALL | METH_KEYWORDS,
       "watch(version, timeout=None, *, spin=None) -> int\n\n"
       "Waits for a version above `version`; returns the newest. Raises TimeoutError.\n\n"
       "timeout: seconds, None waits for ever. spin: seconds to look before sleeping; by default for as long "
       "as "
       "has paid off, and not at all where cores are scarce."},
      {"read_into", method(&box_read_into), METH_FASTCALL | METH_KEYWORDS,
       "read_into(fields, out=None) -> int\n\n"
       "Copies arrays of one version into existing memory and returns the version: read_into('weights', "
       "out), "
       "or read_into({'weights': out, 'bias': b}). The targets are arrays or tensors of the fields' dtypes "
       "and "
       "shapes, contiguous."},
      {"pin", method(&box_pin), METH_FASTCALL,
       "pin(*fields) -> PinBase\n\n"
       "Pins the newest version, without a copy, until the end of the `with` block: `with box.pin('weights') "
       "as "
       "weights:` is that array, with several fields a tuple of arrays, with none the pin itself."},
      {"close", &box_close, METH_NOARGS,
       "Lets go of the box. Pins and arrays that were handed out stay valid. Idempotent."},
      {nullptr, nullptr, 0, nullptr}};
  return methods;
}

std::span<const BoxMethod> box_methods() {
  static const std::array<BoxMethod, 5> methods = [] {
    std::array<BoxMethod, 5> made;
    for (std::size_t i = 0; i < made.size(); ++i) {
      PyMethodDef* definition = box_method_table() + i;
      made[i] = {PyUnicode_InternFromString(definition->ml_name), definition};
    }
    return made;
  }();
  return methods;
}

}  // namespace gristmill::python
