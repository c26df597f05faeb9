#pragma once

// Pickle, for what is not plain: protocol 5, large buffers out of band, and the reducers that
// multiprocessing registers. Needs the GIL.

#include <Python.h>

#include <cstddef>
#include <span>

#include "python/bindings/message_form.h"

namespace gristmill::python {

// How torch's tensors travel: copied, or as torch.multiprocessing has it, by a handle of shared memory.
enum class Tensors { kCopied, kByHandle };

// Appends the pickle of `object` to the message in progress. Returns false with an exception set, and
// the message restarted.
bool encode_pickle(PyObject* object, Tensors tensors, Outgoing& out);

// A message of kPickleForm or kBuffersForm. A new reference, or nullptr with an exception set. owner:
// as for decode_plain.
PyObject* decode_pickle(std::span<const std::byte> message, PyObject* owner);

// Whether somebody registered a reducer for `type`, so that its instances do not pickle by their __dict__.
// True with an exception set when that cannot be told.
bool has_reducer(PyObject* type);

// Makes the types. Returns false with an exception set.
bool init_pickling();

}  // namespace gristmill::python
