// gristmill._core.StageClock, against Python's C interface: it is called twice in every vector step of a
// worker in Python, and pybind11's dispatch costs several times what a charge does.

#include <new>

#include "core/stage_clock.h"
#include "python/bindings/bindings.h"
#include "python/bindings/board_row.h"
#include "python/bindings/python_call.h"
#include "python/bindings/type_tables.h"

namespace gristmill::python {
namespace {

struct Charged {
  PyRow row;
  RunBoard& board;
  StageClock clock;
};

struct ClockObject {
  PyObject_HEAD Charged* charged;  // owned
};

Charged& charged_of(PyObject* self) { return *reinterpret_cast<ClockObject*>(self)->charged; }

// False with an exception set, like read_stage.
bool read_number(PyObject* value, std::uint64_t& number) {
  number = PyLong_AsUnsignedLongLong(value);
  return number != static_cast<std::uint64_t>(-1) || PyErr_Occurred() == nullptr;
}

bool read_stage(PyObject* value, Measure& stage) {
  std::uint64_t number = 0;
  if (!read_number(value, number)) return false;
  stage = static_cast<Measure>(number);
  if (number < kStageCount) return true;
  PyErr_Format(PyExc_ValueError, "stage %R; expected below %zu, a place in stages()", value, kStageCount);
  return false;
}

PyObject* charge(PyObject* self, PyObject* const* arguments, Py_ssize_t given, PyObject* keywords) {
  static constexpr const char* kNames[] = {"stage", "argument"};
  PyObject* values[2] = {};
  Measure stage{};
  std::uint64_t argument = 0;
  if (!read_arguments("charge", kNames, 2, 1, arguments, given, keywords, values) ||
      !read_stage(values[0], stage) || (values[1] != nullptr && !read_number(values[1], argument))) {
    return nullptr;
  }
  charged_of(self).clock.charge(stage, argument);
  Py_RETURN_NONE;
}

PyObject* charge_parts(PyObject* self, PyObject* const* arguments, Py_ssize_t given, PyObject* keywords) {
  static constexpr const char* kNames[] = {"stage", "argument", "inner", "inner_ns"};
  PyObject* values[4] = {};
  Measure stage{};
  Measure inner{};
  std::uint64_t argument = 0;
  std::uint64_t inner_ns = 0;
  if (!read_arguments("charge_parts", kNames, 4, 4, arguments, given, keywords, values) ||
      !read_stage(values[0], stage) || !read_number(values[1], argument) || !read_stage(values[2], inner) ||
      !read_number(values[3], inner_ns)) {
    return nullptr;
  }
  charged_of(self).clock.charge(stage, argument, inner, inner_ns);
  Py_RETURN_NONE;
}

PyObject* skip(PyObject* self, PyObject*) {
  charged_of(self).clock.skip();
  Py_RETURN_NONE;
}

PyObject* acted(PyObject* self, PyObject* value) {
  std::uint64_t version = 0;
  if (!read_number(value, version)) return nullptr;
  Charged& charged = charged_of(self);
  const std::uint64_t published = charged.board.published_at(version);
  if (charged.clock.on() && published != 0 && charged.clock.last_ns() > published) {
    charged.row.row.record(Measure::kParameterLatency, charged.clock.last_ns() - published);
  }
  Py_RETURN_NONE;
}

PyObject* create(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  static const char* const names[] = {"row", "on", nullptr};
  PyObject* row = nullptr;
  int on = 1;
  if (PyArg_ParseTupleAndKeywords(arguments, keywords, "O|p", const_cast<char**>(names), &row, &on) == 0) {
    return nullptr;
  }
  return guarded([&]() -> PyObject* {
    const py::handle given(row);
    if (!py::isinstance<PyRow>(given)) {
      return PyErr_Format(PyExc_TypeError, "row is %R; expected a BoardRow", row);
    }
    const auto& own = given.cast<PyRow&>();
    auto& board = own.board.cast<RunBoard&>();
    PyObject* const self = type->tp_alloc(type, 0);
    if (self == nullptr) return nullptr;
    auto*& charged = reinterpret_cast<ClockObject*>(self)->charged;
    charged = new (std::nothrow) Charged{own, board, StageClock(board, own.row, on != 0)};
    if (charged != nullptr) return self;
    Py_DECREF(self);
    return PyErr_NoMemory();
  });
}

void destroy(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  delete reinterpret_cast<ClockObject*>(self)->charged;
  type->tp_free(self);
  Py_DECREF(type);
}

constexpr const char* kAbout =
    "StageClock(row: BoardRow, on: bool = True)\n--\n\n"
    "Charges its process's time to stages, numbered as in stages(False) + stages(True): one clock read\n"
    "where a stage ends. on=False: it reads no clock and charges nothing. One thread.";

}  // namespace

void bind_stage_clock(py::module_& module) {
  constexpr int kFast = METH_FASTCALL | METH_KEYWORDS;
  static PyMethodDef methods[] = {
      {"charge", method(&charge), kFast,
       "charge(self, stage: int, argument: int = 0) -> None\n\nThe time since the last charge was this "
       "stage's. argument: of its trace span."},
      {"charge_parts", method(&charge_parts), kFast,
       "charge_parts(self, stage: int, argument: int, inner: int, inner_ns: int) -> None\n\nThe same, of "
       "which inner_ns were another stage's."},
      {"skip", method(&skip), METH_NOARGS,
       "skip(self) -> None\n\nThe time since the last charge is nobody's."},
      {"acted", method(&acted), METH_O,
       "acted(self, version: int) -> None\n\nBy a worker: the last charge was its first action under this "
       "version."},
      {nullptr, nullptr, 0, nullptr},
  };
  static PyType_Slot slots[] = {
      {Py_tp_new, slot(&create)},
      {Py_tp_dealloc, slot(&destroy)},
      {Py_tp_methods, methods},
      {Py_tp_doc, const_cast<char*>(kAbout)},
      {0, nullptr},
  };
  static PyType_Spec spec = {"gristmill._core.StageClock", sizeof(ClockObject), 0, Py_TPFLAGS_DEFAULT, slots};
  PyObject* const type = PyType_FromSpec(&spec);
  if (type == nullptr) throw py::error_already_set();
  module.attr("StageClock") = py::reinterpret_steal<py::object>(type);
}

}  // namespace gristmill::python
