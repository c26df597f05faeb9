#pragma once

// Blocking calls from Python: without the GIL, and in slices, so that Ctrl-C ends them at once.

#include <pybind11/pybind11.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "core/deadline.h"

namespace gristmill::python {

namespace py = pybind11;

// The longest time that a signal waits for its Python handler.
inline constexpr std::chrono::milliseconds kSignalSlice{50};

// None: for ever. Negative counts as zero; NaN throws ValueError.
inline Deadline deadline_of(std::optional<double> timeout_s) {
  if (!timeout_s) return Deadline::never();
  if (*timeout_s != *timeout_s) throw py::value_error("timeout is NaN; expected seconds, or None to wait");
  return Deadline::in(std::chrono::duration<double>(*timeout_s));
}

// Calls attempt(Deadline of this slice) without the GIL until done(its result) or the deadline has
// passed; returns the last result. Signal handlers run between slices: what they raise is thrown.
template <class Attempt, class Done>
auto wait_in_slices(Deadline deadline, Attempt&& attempt, Done&& done) {
  while (true) {
    auto result = [&] {
      py::gil_scoped_release release;
      const Deadline slice = Deadline::in(kSignalSlice);
      return attempt(deadline.at() < slice.at() ? deadline : slice);
    }();
    if (done(result) || deadline.passed()) return result;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
}

}  // namespace gristmill::python
