#pragma once

// Python's MessageBatch: messages taken in place. Needs the GIL.

#include <Python.h>

#include "core/message_queue.h"

namespace gristmill::python {

// Keeps taken messages, to be moved into *taken, and the queue that they lie in. nullptr with an exception
// set.
PyObject* new_slab(PyObject* queue, MessageQueue::Taken** taken);

// A batch of `objects`, a list, which look into what the slab keeps. Takes both references over, also when it
// returns nullptr with an exception set.
PyObject* new_batch(PyObject* objects, PyObject* slab);

// Makes the types, and adds MessageBatch to the module. False with an exception set.
bool init_batch(PyObject* module);

}  // namespace gristmill::python
