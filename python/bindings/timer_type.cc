// gristmill.TimerQueue, against Python's C interface: a restart costs less than pybind11's dispatch.
//
// Times are Python's floats, in whatever unit and on whatever clock the caller uses. The queue in C++ only
// compares its time points, so a float goes in as the integer of the same order, and comes out unchanged:
// nothing is rounded.

#include <pybind11/pybind11.h>

#include <bit>
#include <cmath>
#include <new>
#include <optional>

#include "core/timer_queue.h"
#include "python/bindings/bindings.h"
#include "python/bindings/python_call.h"
#include "python/bindings/type_tables.h"

namespace gristmill::python {
namespace {

using TimePoint = TimerQueue::TimePoint;

struct TimersObject {
  PyObject_HEAD TimerQueue* timers;  // owned
};

TimerQueue& timers_of(PyObject* self) { return *reinterpret_cast<TimersObject*>(self)->timers; }

// The bits of a float, read as an integer, are in order but for the negative ones, whose order they turn.
std::int64_t turn_negative(std::int64_t bits) {
  return bits < 0 ? bits ^ std::numeric_limits<std::int64_t>::max() : bits;
}

TimePoint time_point_of(double time) {
  if (time == HUGE_VAL) return TimerQueue::kNever;
  return TimePoint(TimePoint::duration(turn_negative(std::bit_cast<std::int64_t>(time + 0.0))));
}

double time_of(TimePoint at) {
  if (at == TimerQueue::kNever) return HUGE_VAL;
  return std::bit_cast<double>(turn_negative(at.time_since_epoch().count()));
}

// nullopt with an exception set.
std::optional<TimePoint> read_time(PyObject* value, const char* what) {
  const double time = PyFloat_AsDouble(value);
  if (time == -1.0 && PyErr_Occurred() != nullptr) return std::nullopt;
  if (!std::isnan(time)) return time_point_of(time);
  PyErr_Format(PyExc_ValueError, "%s is nan; expected a time, in seconds of the clock that you compare with",
               what);
  return std::nullopt;
}

// 0, which is no timer's, for integers that are out of range. False with TypeError set for what is none.
bool read_id(PyObject* value, TimerQueue::Id& id) {
  id = PyLong_AsUnsignedLongLong(value);
  if (id != static_cast<TimerQueue::Id>(-1) || PyErr_Occurred() == nullptr) return true;
  if (PyErr_ExceptionMatches(PyExc_OverflowError) == 0) return false;
  PyErr_Clear();
  id = 0;
  return true;
}

PyObject* raise_gone(PyObject* id) {
  return PyErr_Format(PyExc_KeyError,
                      "no timer has the id %R: it has expired, was cancelled, or is not of this queue", id);
}

PyObject* schedule(PyObject* self, PyObject* const* arguments, Py_ssize_t given, PyObject* keywords) {
  static constexpr const char* kNames[] = {"deadline"};
  PyObject* values[1] = {};
  if (!read_arguments("schedule", kNames, 1, 1, arguments, given, keywords, values)) return nullptr;
  const std::optional<TimePoint> deadline = read_time(values[0], "deadline");
  if (!deadline) return nullptr;
  return guarded([&] { return PyLong_FromUnsignedLongLong(timers_of(self).schedule(*deadline)); });
}

PyObject* restart(PyObject* self, PyObject* const* arguments, Py_ssize_t given, PyObject* keywords) {
  static constexpr const char* kNames[] = {"id", "deadline"};
  PyObject* values[2] = {};
  if (!read_arguments("restart", kNames, 2, 2, arguments, given, keywords, values)) return nullptr;
  TimerQueue::Id id = 0;
  if (!read_id(values[0], id)) return nullptr;
  const std::optional<TimePoint> deadline = read_time(values[1], "deadline");
  if (!deadline) return nullptr;
  if (!timers_of(self).restart(id, *deadline)) return raise_gone(values[0]);
  Py_RETURN_NONE;
}

PyObject* cancel(PyObject* self, PyObject* const* arguments, Py_ssize_t given, PyObject* keywords) {
  static constexpr const char* kNames[] = {"id"};
  PyObject* values[1] = {};
  TimerQueue::Id id = 0;
  if (!read_arguments("cancel", kNames, 1, 1, arguments, given, keywords, values)) return nullptr;
  if (!read_id(values[0], id)) return nullptr;
  if (!timers_of(self).cancel(id)) return raise_gone(values[0]);
  Py_RETURN_NONE;
}

PyObject* deadline_of_timer(PyObject* self, PyObject* const* arguments, Py_ssize_t given,
                            PyObject* keywords) {
  static constexpr const char* kNames[] = {"id"};
  PyObject* values[1] = {};
  TimerQueue::Id id = 0;
  if (!read_arguments("deadline", kNames, 1, 1, arguments, given, keywords, values)) return nullptr;
  if (!read_id(values[0], id)) return nullptr;
  const std::optional<TimePoint> deadline = timers_of(self).deadline(id);
  return deadline ? PyFloat_FromDouble(time_of(*deadline)) : raise_gone(values[0]);
}

PyObject* expire(PyObject* self, PyObject* const* arguments, Py_ssize_t given, PyObject* keywords) {
  static constexpr const char* kNames[] = {"now"};
  PyObject* values[1] = {};
  if (!read_arguments("expire", kNames, 1, 1, arguments, given, keywords, values)) return nullptr;
  const std::optional<TimePoint> now = read_time(values[0], "now");
  if (!now) return nullptr;
  return guarded([&]() -> PyObject* {
    const std::vector<TimerQueue::Id> ids = timers_of(self).expire(*now);
    PyObject* const list = PyList_New(static_cast<Py_ssize_t>(ids.size()));
    for (std::size_t i = 0; list != nullptr && i < ids.size(); ++i) {
      PyObject* const id = PyLong_FromUnsignedLongLong(ids[i]);
      if (id == nullptr) {
        Py_DECREF(list);
        return nullptr;
      }
      PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), id);
    }
    return list;
  });
}

PyObject* next_deadline(PyObject* self, void*) {
  const std::optional<TimePoint> next = timers_of(self).next_deadline();
  if (!next) Py_RETURN_NONE;
  return PyFloat_FromDouble(time_of(*next));
}

Py_ssize_t length(PyObject* self) { return static_cast<Py_ssize_t>(timers_of(self).size()); }

int contains(PyObject* self, PyObject* value) {
  TimerQueue::Id id = 0;
  if (!read_id(value, id)) return -1;
  return timers_of(self).deadline(id).has_value() ? 1 : 0;
}

PyObject* represent(PyObject* self) {
  PyObject* const next = next_deadline(self, nullptr);
  if (next == nullptr) return nullptr;
  PyObject* const text =
      next == Py_None
          ? PyUnicode_FromString("<gristmill.TimerQueue, empty>")
          : PyUnicode_FromFormat("<gristmill.TimerQueue of %zd timers, the next at %R>", length(self), next);
  Py_DECREF(next);
  return text;
}

PyObject* create(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  if (PyTuple_GET_SIZE(arguments) != 0 || (keywords != nullptr && PyDict_GET_SIZE(keywords) != 0)) {
    PyErr_SetString(PyExc_TypeError, "TimerQueue() takes no arguments");
    return nullptr;
  }
  PyObject* const self = type->tp_alloc(type, 0);
  if (self == nullptr) return nullptr;
  auto*& timers = reinterpret_cast<TimersObject*>(self)->timers;
  timers = new (std::nothrow) TimerQueue;
  if (timers == nullptr) {
    Py_DECREF(self);
    return PyErr_NoMemory();
  }
  return self;
}

void destroy(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  delete reinterpret_cast<TimersObject*>(self)->timers;
  type->tp_free(self);
  Py_DECREF(type);
}

constexpr const char* kAbout =
    "Timers that are restarted far more often than they expire: heartbeats, time-outs, retries.\n\n"
    "Times are numbers; in seconds, of time.monotonic(), unless you have a clock of your own. They are only\n"
    "compared, never rounded and never read from a clock; math.inf never comes, nan is a ValueError. A\n"
    "restart to a later time costs the same however many timers there are, and memory follows the timers\n"
    "that live, not the restarts. Any thread may call, and each call is atomic: the GIL sees to it.\n\n"
    "    timers = gm.TimerQueue()\n"
    "    beat = timers.schedule(time.monotonic() + 30)\n"
    "    timers.restart(beat, time.monotonic() + 30)\n"
    "    for id in timers.expire(time.monotonic()):\n"
    "        ...";

}  // namespace

void bind_timer_queue(py::module_& module) {
  constexpr int kFast = METH_FASTCALL | METH_KEYWORDS;
  static PyMethodDef methods[] = {
      {"schedule", method(&schedule), kFast,
       "schedule(self, deadline: float) -> int\n\nStarts a timer and returns its id. A deadline in the past "
       "is due at the next expire()."},
      {"restart", method(&restart), kFast,
       "restart(self, id: int, deadline: float) -> None\n\nMoves a timer, earlier or later. KeyError when it "
       "has expired or was cancelled."},
      {"cancel", method(&cancel), kFast,
       "cancel(self, id: int) -> None\n\nEnds a timer before its time. KeyError when it has expired or was "
       "cancelled."},
      {"deadline", method(&deadline_of_timer), kFast,
       "deadline(self, id: int) -> float\n\nA timer's deadline. KeyError when it has expired or was "
       "cancelled."},
      {"expire", method(&expire), kFast,
       "expire(self, now: float) -> list[int]\n\nEnds the timers whose deadline is not after `now`. Their "
       "ids by deadline, equal ones in the order in which they were scheduled."},
      {nullptr, nullptr, 0, nullptr},
  };
  static PyGetSetDef properties[] = {
      {"next_deadline", &next_deadline, nullptr,
       "The earliest deadline, math.inf when no timer ever comes, None without timers.", nullptr},
      {nullptr, nullptr, nullptr, nullptr, nullptr},
  };
  static PyType_Slot slots[] = {
      {Py_tp_new, slot(&create)},
      {Py_tp_dealloc, slot(&destroy)},
      {Py_tp_methods, methods},
      {Py_tp_getset, properties},
      {Py_tp_repr, slot(&represent)},
      {Py_sq_length, slot(&length)},
      {Py_sq_contains, slot(&contains)},
      {Py_tp_doc, const_cast<char*>(kAbout)},
      {0, nullptr},
  };
  static PyType_Spec spec = {"gristmill._core.TimerQueue", sizeof(TimersObject), 0, Py_TPFLAGS_DEFAULT,
                             slots};
  PyObject* const type = PyType_FromSpec(&spec);
  if (type == nullptr) throw py::error_already_set();
  module.attr("TimerQueue") = py::reinterpret_steal<py::object>(type);
  bind_timer_simulation(module);
}

}  // namespace gristmill::python
