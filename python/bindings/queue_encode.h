#pragma once

// From objects to messages. Needs the GIL.

#include <Python.h>

#include <memory>

#include "python/bindings/message_form.h"
#include "python/bindings/queue_object.h"

namespace gristmill::python {

// Memory to serialise into, used again by later calls. Serialising may run Python code that puts in turn:
// each call takes its own.
class OutgoingLease {
 public:
  OutgoingLease();
  OutgoingLease(const OutgoingLease&) = delete;
  OutgoingLease& operator=(const OutgoingLease&) = delete;
  ~OutgoingLease();
  Outgoing& operator*() const { return *used_; }
  Outgoing* operator->() const { return used_.get(); }

 private:
  std::unique_ptr<Outgoing> used_;
};

// Appends one more message, by the queue's serializer. False with an exception set, and nothing added.
bool encode(QueueObject& self, PyObject* object, Outgoing& out);

}  // namespace gristmill::python
