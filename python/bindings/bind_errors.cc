#include "core/segment.h"
#include "python/bindings/bindings.h"
#include "python/bindings/errors.h"
#include "rollout/config.h"

namespace gristmill::python {
namespace {

const char* reason_name(SegmentError::Reason reason) {
  using Reason = SegmentError::Reason;
  switch (reason) {
    case Reason::kExists:
      return "exists";
    case Reason::kNotFound:
      return "not_found";
    case Reason::kNotReady:
      return "not_ready";
    case Reason::kNoSpace:
      return "no_space";
    case Reason::kWrongKind:
      return "wrong_kind";
    case Reason::kIncompatible:
      return "incompatible";
    case Reason::kCorrupt:
      return "corrupt";
    case Reason::kNotPermitted:
      return "not_permitted";
    case Reason::kSystem:
      return "system";
  }
  return "unknown";
}

// Python's own exception classes, made once and kept for ever: interpreters end, but a translator
// may still run then.
py::object& add_class(py::module_& module, const char* name, PyObject* base, const char* doc) {
  auto* type = new py::object(py::reinterpret_steal<py::object>(
      PyErr_NewExceptionWithDoc(("gristmill._core." + std::string(name)).c_str(), doc, base, nullptr)));
  module.attr(name) = *type;
  return *type;
}

}  // namespace

void raise_closed(const std::string& what) {
  PyErr_SetString(py::module_::import("gristmill._core").attr("QueueClosed").ptr(), what.c_str());
  throw py::error_already_set();
}

void raise_timeout(const std::string& what) {
  PyErr_SetString(PyExc_TimeoutError, what.c_str());
  throw py::error_already_set();
}

void bind_errors(py::module_& module) {
  static py::object& config_error =
      add_class(module, "ConfigError", PyExc_ValueError,
                "A configuration that is wrong: file and line, key, value, what was "
                "expected. Nothing has been started.");
  static py::object& segment_error =
      add_class(module, "SegmentError", PyExc_RuntimeError,
                "Shared memory that cannot be created or attached; `reason` is one word "
                "for programs, such as 'no_space'.");
  add_class(module, "QueueClosed", PyExc_RuntimeError,
            "The queue is closed, and empty for who takes from it.");

  // NOLINTNEXTLINE(performance-unnecessary-value-param): the signature is pybind11's.
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const ConfigError& error) {
      set_error(config_error.ptr(), error.what());
    } catch (const SegmentError& error) {
      py::object made = segment_error(error.what());
      made.attr("reason") = reason_name(error.reason());
      PyErr_SetObject(segment_error.ptr(), made.ptr());
    }
  });
}

}  // namespace gristmill::python
