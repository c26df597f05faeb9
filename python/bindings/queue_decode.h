#pragma once

// From messages to objects, and what was taken out of a queue that no call has returned yet. Needs the GIL.

#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/message_buffer.h"
#include "core/message_queue.h"
#include "python/bindings/queue_object.h"

namespace gristmill::python {

// One message, copied. nullptr with an exception set: an error has the message in its attribute `payload`; a
// Ctrl-C amid loads leaves the message to the next get.
PyObject* decode_one(QueueObject& self, std::span<const std::byte> message);

// All messages into `objects`, a list. One whose loads raises is put aside, to be reported. False with an
// exception set: Ctrl-C and the like; what is left is put aside then too.
bool decode_copied(QueueObject& self, const MessageBuffer& messages, PyObject* objects);
// Likewise from where they lie. Their space is free again piece by piece, so that producers use it while it
// is in the caches.
bool decode_taken(QueueObject& self, MessageQueue::Taken& messages, PyObject* objects);
// Objects that look into the messages, which `owner` keeps.
bool decode_in_place(QueueObject& self, const MessageQueue::Taken& messages, PyObject* owner,
                     PyObject* objects);

// Whether something was put aside.
bool has_pending(QueueObject& self);
// Up to `max` of it, in order, up to the first error; that, when it is the first. False with an exception
// set.
bool take_pending(QueueObject& self, std::int64_t max, PyObject* objects);

}  // namespace gristmill::python
