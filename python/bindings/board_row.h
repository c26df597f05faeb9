#pragma once

#include <pybind11/pybind11.h>

#include "core/run_board.h"

namespace gristmill::python {

namespace py = pybind11;

// A row as its own process sees it; the board is kept mapped by the object.
struct PyRow {
  py::object board;
  RunBoard::Row row;
};

}  // namespace gristmill::python
