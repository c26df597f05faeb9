#pragma once

// gristmill._core.MessageQueue, which gristmill.Queue extends: written against Python's C interface,
// because a message costs less than pybind11's dispatch. Everything here needs the GIL.

#include <pybind11/pybind11.h>

#include <chrono>
#include <deque>
#include <memory>
#include <span>

#include "core/message_queue.h"
#include "python/bindings/message_form.h"
#include "python/bindings/python_call.h"

namespace gristmill::python {

enum class Serializer { kPickle, kRaw, kCustom };

// Something taken out of the queue that no call has returned yet: a message whose loads raised, and
// what a Ctrl-C left.
struct Pending {
  enum class What { kObject, kError, kMessage };
  What what;
  PyObject* value;  // owned; kMessage: bytes
};

struct QueueObject {
  PyObject_HEAD MessageQueue* queue;  // owned; null before create or attach
  Serializer serializer;
  PyObject* loads;  // kCustom
  PyObject* dumps;
  bool tensors_by_handle;  // kPickle: as torch.multiprocessing sends them, instead of copied
  bool loads_views;        // loads takes a memoryview instead of bytes
  bool closed;             // by this process, through this object
  double default_timeout;  // seconds; infinity: for ever
  std::deque<Pending>* pending;
  long pending_pid;  // a forked child has not taken them
  PyObject* weak_references;
};

// The type, with these methods in it; makes it. nullptr with an exception set.
PyTypeObject* make_queue_type();
// What is not called for every message: adds methods whose names begin with _ to the type.
void bind_queue_rest(const pybind11::object& type);

// queue_put.cc, queue_get.cc, queue_decode.cc
PyObject* queue_put(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);
PyObject* queue_try_put(PyObject*, PyObject*);
PyObject* queue_put_nowait(PyObject*, PyObject*);
PyObject* queue_put_many(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);
PyObject* queue_put_many_nowait(PyObject*, PyObject*);
PyObject* queue_get(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);
PyObject* queue_get_nowait(PyObject*, PyObject*);
PyObject* queue_get_many(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);
PyObject* queue_get_many_nowait(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);
void drop_pending(QueueObject& self);

// ---- Shared by both

inline QueueObject& queue_of(PyObject* self) { return *reinterpret_cast<QueueObject*>(self); }
// False with ValueError set when this object is not open.
bool is_open(QueueObject& self);

// Has passed: for an attempt that does not wait, without reading the clock.
Deadline passed_deadline();

// A signal's handler is run at once; this bounds how long a close() by another thread is not seen.
inline constexpr std::chrono::milliseconds kWaitSlice{50};

// Calls attempt(deadline) without the GIL, in slices, until its outcome is neither kTimedOut nor
// kInterrupted, or `deadline` has passed. False with an exception set: what a signal handler raised,
// or ValueError after close(). `attempt` must not throw Python exceptions.
template <class Attempt>
bool wait_for(QueueObject& self, Deadline deadline, Attempt&& attempt) {
  while (true) {
    const Deadline slice = Deadline::in(kWaitSlice);
    PyThreadState* state = PyEval_SaveThread();
    MessageQueue::Outcome outcome;
    try {
      outcome = attempt(deadline.at() < slice.at() ? deadline : slice);
    } catch (const std::exception&) {
      PyEval_RestoreThread(state);
      throw;
    }
    PyEval_RestoreThread(state);
    if (outcome != MessageQueue::Outcome::kTimedOut && outcome != MessageQueue::Outcome::kInterrupted)
      return true;
    if (PyErr_CheckSignals() != 0 || !is_open(self)) return false;
    if (deadline.passed()) return true;
  }
}

// queue.Full and queue.Empty; nullptr with an exception set.
PyObject* full_class();
PyObject* empty_class();
// True for kOk. Otherwise false, with the exception set that kClosed and kBroken are, or by raise_in_vain()
// when it was tried or waited for in vain.
template <class RaiseInVain>
bool is_done(const QueueObject& self, MessageQueue::Outcome outcome, RaiseInVain&& raise_in_vain);
void raise_ended(const QueueObject& self, bool closed);

template <class RaiseInVain>
bool is_done(const QueueObject& self, MessageQueue::Outcome outcome, RaiseInVain&& raise_in_vain) {
  switch (outcome) {
    case MessageQueue::Outcome::kOk:
      return true;
    case MessageQueue::Outcome::kTimedOut:
    case MessageQueue::Outcome::kInterrupted:
      raise_in_vain();
      return false;
    default:
      raise_ended(self, outcome == MessageQueue::Outcome::kClosed);
      return false;
  }
}

}  // namespace gristmill::python
