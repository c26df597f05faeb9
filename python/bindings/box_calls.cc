// The calls of gristmill.Box that need not be quick: opening, writing what takes some conversion, reading
// into tensors.

#include <pybind11/stl.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "python/bindings/arrays.h"
#include "python/bindings/box_object.h"
#include "python/bindings/waiting.h"

namespace gristmill::python {
namespace {

struct BoxWrite {
  std::shared_ptr<BoxState> state;
  Box::Write write;
};

std::string about(const BoxState& state) { return "box " + state.box->name(); }

[[noreturn]] void raise_late(const std::string& what) {
  PyErr_SetString(PyExc_TimeoutError, what.c_str());
  throw py::error_already_set();
}

ScalarType type_from_name(const std::string& name) {
  for (int i = 0; i <= static_cast<int>(ScalarType::kTimeUtc); ++i) {
    if (scalar_type_name(static_cast<ScalarType>(i)) == name) return static_cast<ScalarType>(i);
  }
  throw py::value_error("unknown type of a field: " + name);
}

void open_state(const py::object& self, std::unique_ptr<Box> box, const py::object& make_snapshot_type) {
  auto state = std::make_shared<BoxState>();
  state->box = std::move(box);
  py::list names;
  const auto add = [&](BoxField field, const std::string& name) {
    field.name = PyUnicode_InternFromString(name.c_str());
    state->fields.push_back(std::move(field));
    names.append(py::str(name));
  };
  for (std::size_t i = 0; i < state->box->scalars().size(); ++i) {
    const ScalarSpec& spec = state->box->scalars()[i];
    add({.scalar = static_cast<int>(i),
         .type = spec.type,
         .word = static_cast<std::uint32_t>(state->box->first_word(i)),
         .words = static_cast<std::uint32_t>(spec.words()),
         .capacity = spec.capacity},
        spec.name);
  }
  for (std::size_t i = 0; i < state->box->spec().size(); ++i) {
    const FieldSpec& spec = state->box->spec()[i];
    add({.array = static_cast<int>(i),
         .dtype = numpy_dtype(spec.dtype).release().ptr(),
         .shape = {spec.shape.begin(), spec.shape.end()},
         .bytes = spec.bytes()},
        spec.name);
  }
  state->words = state->box->words();
  state->array_count = state->box->spec().size();
  state->index();
  state->snapshot_type = make_snapshot_type(names).release().ptr();
  set_state(self, std::move(state));
}

void create(const py::object& self, const std::string& name, const py::list& scalars, const py::dict& arrays,
            const py::object& make_snapshot_type) {
  ScalarSpecs specs;
  for (const auto& each : scalars) {
    const auto entry = each.cast<py::tuple>();
    specs.push_back({entry[0].cast<std::string>(), type_from_name(entry[1].cast<std::string>()),
                     entry[2].cast<std::uint32_t>()});
  }
  open_state(self, Box::create(name, arrays.empty() ? FieldSpecs{} : specs_from_python(arrays), specs),
             make_snapshot_type);
}

void attach(const py::object& self, const std::string& name, double timeout, bool readonly,
            const py::object& make_snapshot_type) {
  const Deadline deadline = deadline_of(timeout);
  std::unique_ptr<Box> box = [&] {
    py::gil_scoped_release release;
    return Box::attach(name, deadline, readonly ? Box::Access::kReadOnly : Box::Access::kReadWrite);
  }();
  open_state(self, std::move(box), make_snapshot_type);
}

std::uint64_t update(const py::object& self, const py::dict& values, std::optional<double> timeout) {
  const std::shared_ptr<BoxState> state = state_of(self);
  Changes changes(*state);
  for (const auto& [name, value] : values) changes.add(field_of(*state, name), value.ptr());
  return changes.commit(deadline_of(timeout));
}

// Where to copy one array to: memory of the field's dtype and shape.
std::byte* target_of(const FieldSpec& spec, const py::handle& value, std::vector<py::object>* kept) {
  py::object array = py::reinterpret_borrow<py::object>(value);
  if (py::hasattr(value, "detach") && py::hasattr(value, "numpy")) {
    array = py::module_::import("gristmill._tensors").attr("writable")(value);
  }
  py::dict one;
  one[py::str(spec.name)] = array;
  std::byte* pointer = writable_fields({spec}, one)[0];
  kept->push_back(std::move(array));
  return pointer;
}

std::optional<std::uint64_t> watch_once(const py::object& self, std::uint64_t seen, double slice,
                                        std::optional<double> spin) {
  const std::shared_ptr<BoxState> state = state_of(self);
  std::optional<std::chrono::nanoseconds> spinning;
  if (spin) spinning = std::chrono::nanoseconds(static_cast<std::int64_t>(std::max(0.0, *spin) * 1e9));
  const Deadline deadline = Deadline::in(std::chrono::duration<double>(slice));
  py::gil_scoped_release release;
  return state->box->watch(seen, deadline, spinning);
}

Box::PublishOutcome begin(BoxWrite& held, std::optional<double> timeout) {
  const Deadline deadline = deadline_of(timeout);
  wait_in_slices(
      deadline,
      [&](Deadline slice) {
        held.write = held.state->box->begin_write(slice);
        return held.write.outcome();
      },
      [](Box::PublishOutcome outcome) { return outcome != Box::PublishOutcome::kTimedOut; });
  return held.write.outcome();
}

}  // namespace

const BoxField& field_of(const BoxState& state, const py::handle& name) {
  const BoxField* field = state.find_text(name.ptr());
  if (field != nullptr) return *field;
  std::string known;
  for (const BoxField& each : state.fields) {
    known += (known.empty() ? "" : ", ") + std::string(py::str(py::handle(each.name)));
  }
  throw py::key_error("no field '" + std::string(py::str(name)) + "'; expected one of: " + known);
}

std::uint64_t read_into(const BoxState& state, const py::dict& out) {
  const FieldSpecs& specs = state.box->spec();
  std::vector<std::byte*> pointers(specs.size(), nullptr);
  std::vector<py::object> kept;
  for (const auto& [name, value] : out) {
    const BoxField& field = field_of(state, name);
    if (field.array < 0) {
      throw py::type_error("field '" + std::string(py::str(name)) + "': expected an array, it is a " +
                           std::string(scalar_type_name(field.type)));
    }
    const auto index = static_cast<std::size_t>(field.array);
    pointers[index] = target_of(specs[index], value, &kept);
  }
  py::gil_scoped_release release;
  return state.box->read_into(pointers);
}

py::object copy_of(const BoxState& state, const BoxField& field) {
  std::vector<std::byte*> memory, out(state.array_count, nullptr);
  py::object array = new_array(field, &memory);
  out[static_cast<std::size_t>(field.array)] = memory[0];
  if (field.bytes < kCopyWithoutGil) {
    state.box->read_into(out);
  } else {
    const std::shared_ptr<Box> held = state.box;  // it may be closed during the copy
    py::gil_scoped_release release;
    held->read_into(out);
  }
  return array;
}

py::array array_for(const FieldSpec& spec, const py::handle& value) {
  py::object source = py::reinterpret_borrow<py::object>(value);
  if (py::hasattr(value, "detach") && py::hasattr(value, "numpy")) {
    source = py::module_::import("gristmill._tensors").attr("readable")(value);
  }
  py::dict one;
  one[py::str(spec.name)] = source;
  return read_fields({spec}, one, false).arrays[0];
}

void Changes::add(const BoxField& field, PyObject* value) {
  if (field.array >= 0) {
    const auto index = static_cast<std::size_t>(field.array);
    py::array array = array_for(state_.box->spec()[index], value);
    pointers_.emplace_back(index, static_cast<const std::byte*>(array.data()));
    arrays_.emplace_back(index, std::move(array));
    return;
  }
  Piece piece{field.word, {}};
  if (!words_of(field, value, piece.content)) throw py::error_already_set();
  pieces_.push_back(std::move(piece));
}

std::vector<Box::Words> Changes::words() const {
  std::vector<Box::Words> words;
  for (const Piece& piece : pieces_) words.push_back({piece.first, piece.content});
  return words;
}

std::vector<const std::byte*> Changes::arrays() const {
  if (pointers_.empty()) return {};
  std::vector<const std::byte*> arrays(state_.box->spec().size(), nullptr);
  // An empty array has no memory, and needs none.
  static const std::byte nothing{};
  for (const auto& [index, pointer] : pointers_) arrays[index] = pointer != nullptr ? pointer : &nothing;
  return arrays;
}

std::uint64_t version_or_throw(const BoxState& state, const Box::PublishResult& result) {
  switch (result.outcome) {
    case Box::PublishOutcome::kOk:
      return result.version;
    case Box::PublishOutcome::kNoFreeSlot:
      throw std::runtime_error(
          about(state) +
          ": every version slot but the newest is pinned; nothing was published. Release pins "
          "when they are no longer needed");
    case Box::PublishOutcome::kTimedOut:
      raise_late(about(state) + ": another writer has its turn, and does not end it");
    case Box::PublishOutcome::kBroken:
      break;
  }
  throw std::runtime_error(about(state) + " is damaged beyond repair");
}

std::uint64_t Changes::commit(Deadline deadline) {
  if (state_.box->read_only()) {
    PyErr_SetString(PyExc_PermissionError, (about(state_) + " is attached read-only").c_str());
    throw py::error_already_set();
  }
  const auto changed = words();
  const auto given = arrays();
  return version_or_throw(
      state_,
      wait_in_slices(
          deadline, [&](Deadline slice) { return state_.box->update(changed, given, slice); },
          [](const Box::PublishResult& done) { return done.outcome != Box::PublishOutcome::kTimedOut; }));
}

std::uint64_t Changes::commit(Box::Write& write) {
  const auto changed = words();
  const auto given = arrays();
  Box::PublishResult result;
  {
    py::gil_scoped_release release;
    result = write.commit(changed, given);
  }
  return version_or_throw(state_, result);
}

void bind_box_calls(py::module_& module) {
  py::class_<BoxWrite>(module, "BoxWrite")
      .def("commit",
           [](BoxWrite& self, const py::dict& values) -> std::uint64_t {
             Changes changes(*self.state);
             for (const auto& [name, value] : values) changes.add(field_of(*self.state, name), value.ptr());
             return changes.commit(self.write);
           })
      .def("release", [](BoxWrite& self) { self.write.release(); });
  module.def("create", &create);
  module.def("attach", &attach);
  module.def("update", &update, py::arg("box"), py::arg("values"), py::arg("timeout") = py::none());
  module.def("watch_once", &watch_once);
  module.def("name", [](const py::object& self) { return state_of(self)->box->name(); });
  module.def("readonly", [](const py::object& self) { return state_of(self)->box->read_only(); });
  module.def("unlink", [](const py::object& self) { state_of(self)->box->unlink(); });
  module.def("skipped_publishes",
             [](const py::object& self) { return state_of(self)->box->skipped_publishes(); });
  module.def("arrays", [](const py::object& self) { return specs_to_python(state_of(self)->box->spec()); });
  module.def("scalars", [](const py::object& self) {
    py::list list;
    for (const ScalarSpec& spec : state_of(self)->box->scalars()) {
      list.append(py::make_tuple(spec.name, std::string(scalar_type_name(spec.type)), spec.capacity));
    }
    return list;
  });
  module.def("begin_write", [](const py::object& self, std::optional<double> timeout) {
    BoxWrite held{state_of(self), {}};
    if (held.state->box->read_only()) {
      PyErr_SetString(PyExc_PermissionError, (about(*held.state) + " is attached read-only").c_str());
      throw py::error_already_set();
    }
    const auto outcome = begin(held, timeout);
    if (outcome == Box::PublishOutcome::kTimedOut) {
      raise_late(about(*held.state) + ": another writer has its turn, and does not end it");
    }
    if (outcome != Box::PublishOutcome::kOk) throw std::runtime_error(about(*held.state) + " is damaged");
    return held;
  });
}

}  // namespace gristmill::python

PYBIND11_MODULE(_box, module) {
  // Its exceptions are raised here too.
  pybind11::module_::import("gristmill._core");
  gristmill::python::add_box_type(module);
  gristmill::python::add_pin_type(module);
  gristmill::python::bind_box_calls(module);
}
