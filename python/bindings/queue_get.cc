// Getting: what is ready is taken with one lock, and turned into objects from private memory, or from
// the queue's own when it is large.

#include <algorithm>
#include <memory>
#include <vector>

#include "python/bindings/message_batch.h"
#include "python/bindings/queue_arguments.h"
#include "python/bindings/queue_decode.h"
#include "python/bindings/queue_object.h"

namespace gristmill::python {
namespace {

using Outcome = MessageQueue::Outcome;

// Copied out of the queue at a time: what stays in the processor's cache until it is decoded.
constexpr std::uint64_t kChunkBytes = 256 * 1024;
// Larger messages are decoded where they lie, which saves a copy.
constexpr std::uint64_t kDecodeInPlace = 4096;

// Guarded by the GIL. Decoding may run Python code that gets in turn: each call takes its own.
std::vector<std::unique_ptr<MessageBuffer>>& idle() {
  static auto* all = new std::vector<std::unique_ptr<MessageBuffer>>;
  return *all;
}

class BufferLease {
 public:
  BufferLease() {
    if (idle().empty()) {
      used_ = std::make_unique<MessageBuffer>();
    } else {
      used_ = std::move(idle().back());
      idle().pop_back();
    }
  }
  BufferLease(const BufferLease&) = delete;
  BufferLease& operator=(const BufferLease&) = delete;
  ~BufferLease() {
    if (used_->capacity() > MessageBuffer::kKeepBytes) used_->trim();
    idle().push_back(std::move(used_));
  }
  MessageBuffer& operator*() const { return *used_; }

 private:
  std::unique_ptr<MessageBuffer> used_;
};

bool raise_unless_ok(const QueueObject& self, Outcome outcome, bool waited) {
  return is_done(self, outcome, [&] {
    if (waited) {
      PyErr_SetString(empty_class(), "the queue stayed empty");
    } else {
      PyErr_SetNone(empty_class());
    }
  });
}

bool is_waiting(Outcome outcome) { return outcome == Outcome::kTimedOut || outcome == Outcome::kInterrupted; }

// Whether the messages that wait are large on average.
bool are_large(const MessageQueue& queue) {
  const std::int64_t size = queue.size();
  return size > 0 && queue.bytes_used() / static_cast<std::uint64_t>(size) >= kDecodeInPlace;
}

// Waits for messages and takes them in place. kTimedOut when none came. False with an exception set.
bool take_waiting(QueueObject& self, std::int64_t max, Deadline deadline, MessageQueue::TakeResult& taken) {
  return wait_for(self, deadline, [&](Deadline slice) {
    taken = self.queue->take(max, MessageQueue::kNoLimit, slice);
    return taken.outcome;
  });
}

// One message, at once if there is one.
PyObject* get_one(QueueObject& self, const Patience& patience) {
  if (has_pending(self)) {
    PyObject* objects = PyList_New(0);
    if (objects == nullptr) return nullptr;
    const bool good = take_pending(self, 1, objects);
    PyObject* made = good && PyList_GET_SIZE(objects) > 0 ? Py_NewRef(PyList_GET_ITEM(objects, 0)) : nullptr;
    Py_DECREF(objects);
    if (made != nullptr || !good) return made;
  }
  if (!are_large(*self.queue)) {
    BufferLease buffer;
    const Outcome outcome = self.queue->get(*buffer, passed_deadline());
    if (outcome == Outcome::kOk) return decode_one(self, (*buffer)[0]);
    if (!is_waiting(outcome) || !patience.block) {
      raise_unless_ok(self, outcome, false);
      return nullptr;
    }
  }
  MessageQueue::TakeResult taken;
  if (!patience.block) {
    taken = self.queue->take(1, MessageQueue::kNoLimit, passed_deadline());
  } else if (!take_waiting(self, 1, patience.deadline(), taken)) {
    return nullptr;
  }
  if (!raise_unless_ok(self, taken.outcome, patience.block)) return nullptr;
  return decode_one(self, taken.batch[0]);
}

// What is ready, up to `max`, behind what is in `objects`, without waiting. Sets `outcome`; false with
// an exception set.
bool get_ready(QueueObject& self, std::int64_t max, PyObject* objects, Outcome& outcome) {
  // What comes in meanwhile is for the next call: producers could keep this one for ever.
  std::int64_t left = max;
  bool first = true;
  while (left > 0) {
    std::size_t count = 0;
    if (are_large(*self.queue)) {
      auto taken = self.queue->take(left, MessageQueue::kNoLimit, passed_deadline());
      outcome = taken.outcome;
      count = taken.batch.size();
      if (!decode_taken(self, taken.batch, objects)) return false;
    } else {
      BufferLease buffer;
      outcome = self.queue->get_many(left, kChunkBytes, *buffer, passed_deadline());
      count = outcome == Outcome::kOk ? (*buffer).size() : 0;
      if (count > 0 && !decode_copied(self, *buffer, objects)) return false;
    }
    if (outcome != Outcome::kOk || count == 0) return true;
    left -= static_cast<std::int64_t>(count);
    if (first) left = std::min(left, self.queue->size());
    first = false;
  }
  return true;
}

// Ends a get_many: the objects, or the first error that was put aside when there are none.
PyObject* finish(QueueObject& self, PyObject* objects) {
  if (PyList_GET_SIZE(objects) > 0) return objects;
  const bool good = take_pending(self, kAll, objects);
  if (good && PyList_GET_SIZE(objects) > 0) return objects;
  Py_DECREF(objects);
  if (good) PyErr_SetNone(empty_class());
  return nullptr;
}

PyObject* get_copies(QueueObject& self, std::int64_t max, const Patience& patience) {
  PyObject* objects = PyList_New(0);
  if (objects == nullptr) return nullptr;
  const auto fail = [&]() -> PyObject* {
    Py_DECREF(objects);
    return nullptr;
  };
  if (has_pending(self)) {
    if (!take_pending(self, max, objects)) return fail();
    // An error comes before what is behind it.
    if (has_pending(self) || PyList_GET_SIZE(objects) >= max) return finish(self, objects);
  }
  Outcome outcome = Outcome::kOk;
  if (!get_ready(self, max - PyList_GET_SIZE(objects), objects, outcome)) return fail();
  if (PyList_GET_SIZE(objects) > 0 || has_pending(self)) return finish(self, objects);
  if (is_waiting(outcome) && patience.block) {
    MessageQueue::TakeResult taken;
    if (!take_waiting(self, max, patience.deadline(), taken)) return fail();
    outcome = taken.outcome;
    if (outcome == Outcome::kOk) {
      if (!decode_taken(self, taken.batch, objects)) return fail();
      return finish(self, objects);
    }
  }
  raise_unless_ok(self, outcome, patience.block);
  return fail();
}

PyObject* get_in_place(PyObject* object, std::int64_t max, const Patience& patience) {
  QueueObject& self = queue_of(object);
  MessageQueue::Taken* kept = nullptr;
  PyObject* owner = new_slab(object, &kept);
  if (owner == nullptr) return nullptr;
  PyObject* objects = PyList_New(0);
  const auto fail = [&]() -> PyObject* {
    Py_XDECREF(objects);
    Py_DECREF(owner);
    return nullptr;
  };
  if (objects == nullptr || (has_pending(self) && !take_pending(self, max, objects))) return fail();
  if (PyList_GET_SIZE(objects) == 0) {
    auto taken = self.queue->take(max, MessageQueue::kNoLimit, passed_deadline());
    if (is_waiting(taken.outcome) && patience.block && !take_waiting(self, max, patience.deadline(), taken)) {
      return fail();
    }
    if (!raise_unless_ok(self, taken.outcome, patience.block)) return fail();
    *kept = std::move(taken.batch);
    if (!decode_in_place(self, *kept, owner, objects)) return fail();
    objects = finish(self, objects);
    if (objects == nullptr) return fail();
  }
  return new_batch(objects, owner);
}

PyObject* get_many(PyObject* object, std::int64_t max, const Patience& patience, PyObject* copy) {
  const int copies = copy == nullptr ? 1 : PyObject_IsTrue(copy);
  if (copies < 0) return nullptr;
  return guarded([&] {
    return copies ? get_copies(queue_of(object), max, patience) : get_in_place(object, max, patience);
  });
}

}  // namespace

PyObject* queue_get(PyObject* object, PyObject* const* arguments, Py_ssize_t given, PyObject* keywords) {
  static constexpr const char* kNames[] = {"block", "timeout"};
  PyObject* values[2] = {};
  QueueObject& self = queue_of(object);
  Patience patience;
  if (!QueueCall{arguments, given, keywords}.read(self, "get", kNames, 0, values, patience)) return nullptr;
  return guarded([&] { return get_one(self, patience); });
}

PyObject* queue_get_nowait(PyObject* object, PyObject*) {
  QueueObject& self = queue_of(object);
  if (!is_open(self)) return nullptr;
  return guarded([&] { return get_one(self, Patience{.block = false}); });
}

PyObject* queue_get_many(PyObject* object, PyObject* const* arguments, Py_ssize_t given, PyObject* keywords) {
  static constexpr const char* kNames[] = {"block", "timeout", "max_messages_to_get", "copy"};
  PyObject* values[4] = {};
  Patience patience;
  std::int64_t max = kAll;
  if (!QueueCall{arguments, given, keywords}.read(queue_of(object), "get_many", kNames, 0, values,
                                                  patience) ||
      !read_max(values[2], max)) {
    return nullptr;
  }
  return get_many(object, max, patience, values[3]);
}

PyObject* queue_get_many_nowait(PyObject* object, PyObject* const* arguments, Py_ssize_t given,
                                PyObject* keywords) {
  static constexpr const char* kNames[] = {"max_messages_to_get", "copy"};
  PyObject* values[2] = {};
  Patience patience;
  std::int64_t max = kAll;
  if (!QueueCall{arguments, given, keywords}.read(queue_of(object), "get_many_nowait", kNames, 0, values,
                                                  patience) ||
      !read_max(values[0], max)) {
    return nullptr;
  }
  return get_many(object, max, Patience{.block = false}, values[1]);
}

}  // namespace gristmill::python
