#include "python/bindings/arrays.h"

#include <pybind11/stl.h>

#include <string>

namespace gristmill::python {
namespace {

std::string shape_words(const std::vector<std::int64_t>& shape, bool many) {
  std::string words = many ? "[n" : "[";
  for (std::size_t i = 0; i < shape.size(); ++i) words += (i || many ? ", " : "") + std::to_string(shape[i]);
  return words + "]";
}

std::string shape_words(const py::array& array) {
  return shape_words(std::vector<std::int64_t>(array.shape(), array.shape() + array.ndim()), false);
}

std::string wanted(const FieldSpec& spec, bool many) {
  return std::string(py::str(numpy_dtype(spec.dtype))) + " " + shape_words(spec.shape, many);
}

[[noreturn]] void refuse(const FieldSpec& spec, bool many, const std::string& got) {
  throw py::type_error("field '" + spec.name + "': expected " + wanted(spec, many) + ", got " + got);
}

// What speaks DLPack (torch's tensors, CuPy's and JAX's arrays) as an array over the same memory. A null
// object: it does not. torch's are read by a way of their own, which knows bfloat16 and other devices.
py::object over_the_same_memory(const py::handle& value) {
  if (py::isinstance<py::array>(value) || !py::hasattr(value, "__dlpack__")) return {};
  const bool torch = py::hasattr(value, "detach") && py::hasattr(value, "numpy");
  return torch ? py::module_::import("gristmill._tensors").attr("readable")(value)
               : py::module_::import("numpy").attr("from_dlpack")(value);
}

py::array as_array(const FieldSpec& spec, const py::handle& given, bool many) {
  const py::dtype dtype = numpy_dtype(spec.dtype);
  const py::object seen = over_the_same_memory(given);
  const py::handle value = seen ? py::handle(seen) : given;
  if (!py::isinstance<py::array>(value)) {
    static const auto as_contiguous = [] { return py::module_::import("numpy").attr("ascontiguousarray"); };
    try {
      return as_contiguous()(value, dtype)
          .cast<py::array>()
          .reshape(py::module_::import("numpy").attr("shape")(value).cast<std::vector<py::ssize_t>>());
    } catch (const py::error_already_set&) {
      refuse(spec, many, std::string(py::repr(value)));
    }
  }
  auto array = py::reinterpret_borrow<py::array>(value);
  if (!array.dtype().equal(dtype)) {
    refuse(spec, many, std::string(py::str(array.dtype())) + " " + shape_words(array));
  }
  return array;
}

void check_shape(const FieldSpec& spec, const py::array& array, bool many) {
  const auto skip = static_cast<py::ssize_t>(many ? 1 : 0);
  bool fits = array.ndim() == static_cast<py::ssize_t>(spec.shape.size()) + skip;
  for (py::ssize_t i = skip; fits && i < array.ndim(); ++i) {
    fits = array.shape(i) == spec.shape[static_cast<std::size_t>(i - skip)];
  }
  if (!fits) refuse(spec, many, "shape " + shape_words(array));
}

std::string known(const FieldSpecs& specs) {
  std::string names;
  for (const auto& spec : specs) names += (names.empty() ? "" : ", ") + spec.name;
  return names;
}

void refuse_unknown(const FieldSpecs& specs, const py::dict& values) {
  for (const auto& [key, value] : values) index_of(specs, std::string(py::str(key)));
}

}  // namespace

py::dtype numpy_dtype(DType dtype) {
  if (dtype == DType::kBFloat16) return py::dtype("uint16");
  return py::dtype(std::string(dtype_name(dtype)));
}

FieldSpecs specs_from_python(const py::dict& fields) {
  FieldSpecs specs;
  for (const auto& [key, value] : fields) {
    FieldSpec spec;
    spec.name = std::string(py::str(key));
    const std::string expected =
        "field '" + spec.name + "': expected (dtype, shape), such as ('float32', (4,)), got ";
    if (!py::isinstance<py::tuple>(value) && !py::isinstance<py::list>(value)) {
      throw py::type_error(expected + std::string(py::repr(value)));
    }
    const auto pair = py::reinterpret_borrow<py::sequence>(value);
    if (pair.size() != 2) throw py::type_error(expected + std::string(py::repr(value)));
    const py::object dtype = pair[0], shape = pair[1];
    const std::string name = py::isinstance<py::str>(dtype)
                                 ? std::string(py::str(dtype))
                                 : std::string(py::str(py::dtype::from_args(dtype)));
    spec.dtype = dtype_from_name(name);
    try {
      spec.shape = py::isinstance<py::int_>(shape) ? std::vector<std::int64_t>{shape.cast<std::int64_t>()}
                                                   : shape.cast<std::vector<std::int64_t>>();
    } catch (const py::cast_error&) {
      throw py::type_error(expected + std::string(py::repr(value)));
    }
    specs.push_back(std::move(spec));
  }
  validate(specs);
  return specs;
}

py::dict specs_to_python(const FieldSpecs& specs) {
  py::dict fields;
  for (const auto& spec : specs) {
    fields[py::str(spec.name)] =
        py::make_tuple(std::string(dtype_name(spec.dtype)), py::tuple(py::cast(spec.shape)));
  }
  return fields;
}

FieldArrays read_fields(const FieldSpecs& specs, const py::dict& values, bool many) {
  FieldArrays fields;
  refuse_unknown(specs, values);
  for (const auto& spec : specs) {
    const py::str key(spec.name);
    if (!values.contains(key)) {
      throw py::key_error("field '" + spec.name + "' is missing; expected " + wanted(spec, many));
    }
    py::array array = as_array(spec, values[key], many);
    check_shape(spec, array, many);
    if (!(array.flags() & py::array::c_style)) array = py::array::ensure(array, py::array::c_style);
    if (many) {
      const std::int64_t count = array.shape(0);
      if (!fields.arrays.empty() && count != fields.count) {
        throw py::value_error("field '" + spec.name + "' has " + std::to_string(count) + " entries, '" +
                              specs.front().name + "' has " + std::to_string(fields.count) +
                              "; expected the same number in each");
      }
      fields.count = count;
    }
    fields.pointers.push_back(static_cast<const std::byte*>(array.data()));
    fields.arrays.push_back(std::move(array));
  }
  return fields;
}

std::vector<std::byte*> writable_fields(const FieldSpecs& specs, const py::dict& values) {
  refuse_unknown(specs, values);
  std::vector<std::byte*> pointers;
  for (const auto& spec : specs) {
    const py::str key(spec.name);
    if (!values.contains(key)) {
      pointers.push_back(nullptr);
      continue;
    }
    const py::object value = values[key];
    if (!py::isinstance<py::array>(value)) refuse(spec, false, std::string(py::repr(value)));
    py::array array = as_array(spec, value, false);
    check_shape(spec, array, false);
    if (!(array.flags() & py::array::c_style) || !array.writeable()) {
      throw py::value_error("field '" + spec.name + "': expected a contiguous, writeable array");
    }
    pointers.push_back(static_cast<std::byte*>(array.mutable_data()));
  }
  return pointers;
}

py::array view_of(const FieldSpec& spec, std::byte* data, std::optional<std::int64_t> count,
                  const py::object& base, bool writeable) {
  std::vector<py::ssize_t> shape;
  if (count) shape.push_back(*count);
  shape.insert(shape.end(), spec.shape.begin(), spec.shape.end());
  py::array array(numpy_dtype(spec.dtype), shape, data, base);
  if (!writeable) array.attr("setflags")(py::arg("write") = false);
  return array;
}

std::size_t index_of(const FieldSpecs& specs, const std::string& name) {
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].name == name) return i;
  }
  throw py::key_error("no field '" + name + "'; expected one of: " + known(specs));
}

}  // namespace gristmill::python
