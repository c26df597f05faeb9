#pragma once

// What put and get are called with.

#include <Python.h>

#include <cstdint>
#include <limits>
#include <span>

#include "core/deadline.h"

namespace gristmill::python {

struct QueueObject;

inline constexpr double kForEver = std::numeric_limits<double>::infinity();
inline constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::max();

// Seconds from a number, or None for ever. False with an exception set.
bool read_seconds(PyObject* value, double& seconds);
// max_messages_to_get; a null value or None leaves it. False with an exception set.
bool read_max(PyObject* value, std::int64_t& max);

// block and timeout, as multiprocessing.Queue means them.
struct Patience {
  bool block = true;
  double seconds = 0;  // infinity: for ever

  Deadline deadline() const;
};

// A call's arguments, by position or name.
struct QueueCall {
  PyObject* const* arguments;
  Py_ssize_t given;
  PyObject* keywords;

  // Into values[0, names.size()); missing ones stay null. The first `required` must be there. Where names
  // have "block" and "timeout", these go into `patience`. False with an exception set: also when the queue is
  // not open.
  bool read(QueueObject& self, const char* function, std::span<const char* const> names, int required,
            PyObject** values, Patience& patience) const;
};

}  // namespace gristmill::python
