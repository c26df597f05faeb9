#pragma once

// Named NumPy arrays in and out of fields in shared memory.

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "core/field_spec.h"

namespace gristmill::python {

namespace py = pybind11;

// A mapping {name: (dtype, shape)}, in its order. A shape may be one integer. Throws TypeError or
// ValueError naming the field.
FieldSpecs specs_from_python(const py::dict& fields);
// Its inverse: {name: (dtype name, shape)}.
py::dict specs_to_python(const FieldSpecs& specs);

// NumPy's dtype; bfloat16, which NumPy lacks, as the uint16 of its bits.
py::dtype numpy_dtype(DType dtype);

// What put and publish read. The arrays keep the pointers alive.
struct FieldArrays {
  std::vector<py::array> arrays;
  std::vector<const std::byte*> pointers;  // in the order of the spec
  std::int64_t count = 1;                  // length of the leading dimension
};

// Every field of `specs` from `values`, {name: array}: [shape…] each, or, when `many`, [count,
// shape…] with one count for all. An array must have the field's dtype; what is not an array yet
// (numbers, lists) is converted. Copies only what is not contiguous. Throws KeyError, TypeError or
// ValueError naming the field and what was expected.
FieldArrays read_fields(const FieldSpecs& specs, const py::dict& values, bool many);

// As read_fields, for writing in place: arrays must be contiguous and writeable. Fields that are not
// in `values` have null pointers.
std::vector<std::byte*> writable_fields(const FieldSpecs& specs, const py::dict& values);

// An array that looks into `data` and keeps `base` alive. count: a leading dimension.
py::array view_of(const FieldSpec& spec, std::byte* data, std::optional<std::int64_t> count,
                  const py::object& base, bool writeable);

// Index of the field `name`. Throws KeyError naming the known ones.
std::size_t index_of(const FieldSpecs& specs, const std::string& name);

}  // namespace gristmill::python
