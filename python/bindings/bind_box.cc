#include <pybind11/stl.h>

#include "core/box.h"
#include "python/bindings/arrays.h"
#include "python/bindings/bindings.h"
#include "python/bindings/errors.h"
#include "python/bindings/waiting.h"

namespace gristmill::python {
namespace {

// The segment was there when it was pickled.
constexpr std::chrono::seconds kAttach{5};

// A pin and the box it looks into; members end in reverse order.
struct PyPin {
  py::object box;
  Box::Pin pin;

  const FieldSpecs& specs() const { return box.cast<const Box&>().spec(); }
};

std::uint64_t publish(Box& box, const py::dict& values, std::optional<double> timeout_s) {
  const Deadline deadline = deadline_of(timeout_s);
  const FieldArrays fields = read_fields(box.spec(), values, false);
  using Outcome = Box::PublishOutcome;
  const auto result = wait_in_slices(
      deadline, [&](Deadline slice) { return box.publish(fields.pointers, slice); },
      [](const Box::PublishResult& done) { return done.outcome != Outcome::kTimedOut; });
  switch (result.outcome) {
    case Outcome::kOk:
      return result.version;
    case Outcome::kNoFreeSlot:
      throw std::runtime_error(
          "box " + box.name() +
          ": every version slot but the newest is pinned; nothing was published. Release "
          "pins when they are no longer needed");
    case Outcome::kTimedOut:
      raise_timeout("box " + box.name() + ": another writer holds the lock");
    case Outcome::kBroken:
      break;
  }
  throw std::runtime_error("box " + box.name() + " is damaged beyond repair");
}

std::uint64_t watch(Box& box, std::uint64_t seen, std::optional<double> timeout_s) {
  const auto version = wait_in_slices(
      deadline_of(timeout_s), [&](Deadline slice) { return box.watch(seen, slice); },
      [](const std::optional<std::uint64_t>& newest) { return newest.has_value(); });
  if (!version) raise_timeout("box " + box.name() + " has no version after " + std::to_string(seen));
  return *version;
}

py::tuple read(Box& box) {
  py::dict arrays;
  std::vector<std::byte*> pointers;
  for (const auto& spec : box.spec()) {
    py::array array(numpy_dtype(spec.dtype), std::vector<py::ssize_t>(spec.shape.begin(), spec.shape.end()));
    pointers.push_back(static_cast<std::byte*>(array.mutable_data()));
    arrays[py::str(spec.name)] = array;
  }
  std::uint64_t version = 0;
  {
    py::gil_scoped_release release;
    version = box.read_into(pointers);
  }
  return py::make_tuple(version, arrays);
}

std::uint64_t read_into(Box& box, const py::dict& out) {
  const auto pointers = writable_fields(box.spec(), out);
  py::gil_scoped_release release;
  return box.read_into(pointers);
}

py::array pin_field(const py::object& self, const std::string& name) {
  auto& pin = self.cast<PyPin&>();
  const auto& specs = pin.specs();
  const std::size_t index = index_of(specs, name);
  if (!pin.pin) throw py::value_error("the pin is released");
  // Read-only below: other readers share it.
  return view_of(specs[index], const_cast<std::byte*>(pin.pin.field(index)), std::nullopt, self, false);
}

void bind_pin(py::module_& module) {
  py::class_<PyPin>(
      module, "Pin",
      "One version, in place: pin['weights'] is a read-only NumPy array that looks into the box.\n\n"
      "Unpinned by release(), after the `with` block, or when the pin and all its arrays are gone; "
      "arrays must not be used after an explicit release.")
      .def_property_readonly("version", [](const PyPin& self) { return self.pin.version(); })
      .def("__getitem__", &pin_field, py::arg("field"))
      .def(
          "release", [](PyPin& self) { self.pin.release(); }, "Idempotent.")
      .def("__enter__", [](py::object self) { return self; })
      .def("__exit__", [](PyPin& self, const py::args&) { self.pin.release(); });
}

}  // namespace

void bind_box(py::module_& module) {
  bind_pin(module);
  py::class_<Box>(
      module, "Box",
      "Typed arrays in shared memory, published as one version by a writer and read by many.\n\nTimeouts "
      "are in seconds; None waits for ever. Waiting frees the GIL, and Ctrl-C ends it. Pickling one "
      "attaches to it at the other end.")
      .def_static(
          "create",
          [](const std::string& name, const py::dict& fields) {
            return Box::create(name, specs_from_python(fields));
          },
          py::arg("name"), py::arg("fields"),
          "Creates the segment `name` (see segment_name). fields: {name: (dtype, shape)}. Version 0 is all "
          "zeros. "
          "Raises SegmentError, ValueError.")
      .def_static(
          "attach",
          [](const std::string& name, std::optional<double> timeout) {
            const Deadline deadline = deadline_of(timeout);
            py::gil_scoped_release release;
            return Box::attach(name, deadline);
          },
          py::arg("name"), py::arg("timeout") = 5.0, "Attaches to an existing one. Raises SegmentError.")
      .def_property_readonly("name", &Box::name)
      .def_property_readonly(
          "fields", [](const Box& self) { return specs_to_python(self.spec()); }, "{name: (dtype, shape)}.")
      .def_property_readonly("version", &Box::version, "The newest.")
      .def("publish", &publish, py::arg("fields"), py::arg("timeout") = py::none(),
           "Writes every field, {name: array}, as one new version and returns its number. Raises "
           "TimeoutError when "
           "another writer does not finish, RuntimeError when readers pin every slot.")
      .def("watch", &watch, py::arg("seen"), py::arg("timeout") = py::none(),
           "Waits for a version above `seen`; returns the newest. Raises TimeoutError.")
      .def(
          "pin",
          [](const py::object& self) {
            return PyPin{self, self.cast<Box&>().pin()};
          },
          "Pins the newest version, without a copy.")
      .def("read", &read, "(version, {name: array}): a consistent copy of the newest version.")
      .def("read_into", &read_into, py::arg("out"),
           "Copies fields of the newest version into existing arrays, {name: array}; returns its number.")
      .def_property_readonly("skipped_publishes", &Box::skipped_publishes,
                             "Publishes that found every slot pinned.")
      .def("unlink", &Box::unlink, "Removes the name; mappings stay valid.")
      .def(py::pickle([](const Box& self) { return self.name(); },
                      [](const std::string& name) { return Box::attach(name, Deadline::in(kAttach)); }))
      .def("__repr__", [](const Box& self) {
        return "<Box " + self.name() + ", version " + std::to_string(self.version()) + ">";
      });
}

}  // namespace gristmill::python
