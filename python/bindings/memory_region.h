#pragma once

// Memory with Python's buffer protocol: what an array that came through a queue looks into. Needs the
// GIL, except where noted.

#include <Python.h>

#include <cstddef>

namespace gristmill::python {

// Uninitialised memory of its own, from memory_pool.h, aligned to 64, writeable. Returns nullptr with
// MemoryError set. *data is where it lies.
PyObject* new_region(std::size_t bytes, std::byte** data);
// A look into memory that `owner` keeps (a new reference is taken).
PyObject* new_region_of(std::byte* data, std::size_t bytes, PyObject* owner);

// Copies what a queue's ring holds; frees the GIL while it copies much.
void copy_message(std::byte* to, const std::byte* from, std::size_t bytes);

// Makes the type. Returns false with an exception set.
bool init_memory_region();

}  // namespace gristmill::python
