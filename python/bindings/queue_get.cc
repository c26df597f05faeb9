// Getting: what is ready is taken with one lock, and turned into objects from private memory, or from
// the queue's own when it is large.

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "python/bindings/memory_region.h"
#include "python/bindings/message_codec.h"
#include "python/bindings/pickling.h"
#include "python/bindings/queue_object.h"

namespace gristmill::python {
namespace {

using Outcome = MessageQueue::Outcome;
using Bytes = std::span<const std::byte>;

// Copied out of the queue at a time: what stays in the processor's cache until it is decoded.
constexpr std::uint64_t kChunkBytes = 256 * 1024;
// Larger messages are decoded where they lie, which saves a copy.
constexpr std::uint64_t kDecodeInPlace = 4096;
constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::max();

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

// ---- A batch in place

// Keeps taken messages, and the queue they lie in.
struct Slab {
  PyObject_HEAD MessageQueue::Taken* taken;  // owned
  PyObject* queue;
};

struct MessageBatch {
  PyObject_HEAD PyObject* objects;  // a list; null when released
  PyObject* slab;
};

PyTypeObject* slab_type = nullptr;
PyTypeObject* batch_type = nullptr;

void slab_dealloc(PyObject* self) {
  auto* slab = reinterpret_cast<Slab*>(self);
  PyTypeObject* type = Py_TYPE(self);
  delete slab->taken;
  Py_CLEAR(slab->queue);
  type->tp_free(self);
  Py_DECREF(type);
}

// ---- Decoding

PyObject* decode(QueueObject& self, Bytes message, PyObject* owner) {
  const auto length = static_cast<Py_ssize_t>(message.size());
  const auto* data = reinterpret_cast<const char*>(message.data());
  switch (self.serializer) {
    case Serializer::kPickle: {
      const std::uint8_t form = message.empty() ? 0 : static_cast<std::uint8_t>(message[0]);
      if (form == kPlainForm) return decode_plain(message, owner);
      if (form == kPickleForm || form == kBuffersForm) return decode_pickle(message, owner);
      PyErr_Format(PyExc_ValueError,
                   "the message is damaged, or of another serializer: its first byte is 0x%02x", form);
      return nullptr;
    }
    case Serializer::kRaw: {
      if (owner == nullptr) return PyBytes_FromStringAndSize(data, length);
      PyObject* region = new_region_of(const_cast<std::byte*>(message.data()), message.size(), owner);
      if (region == nullptr) return nullptr;
      PyObject* view = PyMemoryView_FromObject(region);
      Py_DECREF(region);
      return view;
    }
    case Serializer::kCustom:
      break;
  }
  // A private copy: what loads keeps of it must not change under it.
  PyObject* argument = PyBytes_FromStringAndSize(data, length);
  if (argument != nullptr && self.loads_views) {
    PyObject* view = PyMemoryView_FromObject(argument);
    Py_DECREF(argument);
    argument = view;
  }
  if (argument == nullptr) return nullptr;
  PyObject* made = PyObject_CallOneArg(self.loads, argument);
  Py_DECREF(argument);
  return made;
}

// The exception that is set, with the message in its attribute `payload`.
PyObject* taken_error(Bytes message) {
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (traceback != nullptr) PyException_SetTraceback(value, traceback);
  PyObject* payload = PyBytes_FromStringAndSize(reinterpret_cast<const char*>(message.data()),
                                                static_cast<Py_ssize_t>(message.size()));
  if (payload == nullptr || PyObject_SetAttrString(value, "payload", payload) != 0) PyErr_Clear();
  Py_XDECREF(payload);
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  return value;
}

void raise_taken(PyObject* error) {
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error)), error);
  Py_DECREF(error);
}

std::deque<Pending>& pending_of(QueueObject& self) {
  if (self.pending == nullptr) {
    self.pending = new std::deque<Pending>;
    self.pending_pid = getpid();
  }
  return *self.pending;
}

bool has_pending(QueueObject& self) {
  if (self.pending == nullptr || self.pending->empty()) return false;
  if (self.pending_pid != getpid()) {
    drop_pending(self);  // the parent's
    return false;
  }
  return true;
}

// Decodes messages [0, count) into `objects`, a list. A message whose loads raises is put aside, to be
// reported. False with an exception set: Ctrl-C and the like; what is left is put aside then too.
template <class At>
bool decode_all(QueueObject& self, std::size_t count, At&& at, PyObject* owner, PyObject* objects) {
  for (std::size_t i = 0; i < count; ++i) {
    PyObject* made = decode(self, at(i), owner);
    if (made != nullptr) {
      const int appended = PyList_Append(objects, made);
      Py_DECREF(made);
      if (appended == 0) continue;
    }
    if (PyErr_ExceptionMatches(PyExc_Exception)) {
      pending_of(self).push_back({Pending::What::kError, taken_error(at(i))});
      continue;
    }
    PyObject* type = nullptr;
    PyObject* value = nullptr;
    PyObject* traceback = nullptr;
    PyErr_Fetch(&type, &value, &traceback);
    auto& pending = pending_of(self);
    for (Py_ssize_t j = 0; owner == nullptr && j < PyList_GET_SIZE(objects); ++j) {
      pending.push_back({Pending::What::kObject, Py_NewRef(PyList_GET_ITEM(objects, j))});
    }
    for (std::size_t j = owner == nullptr ? i : 0; j < count; ++j) {
      PyObject* raw = PyBytes_FromStringAndSize(reinterpret_cast<const char*>(at(j).data()),
                                                static_cast<Py_ssize_t>(at(j).size()));
      if (raw != nullptr) pending.push_back({Pending::What::kMessage, raw});
    }
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
    return false;
  }
  return true;
}

// Up to `max` of what was put aside, in order, up to the first error; that, when it is the first.
// False with an exception set.
bool take_pending(QueueObject& self, std::int64_t max, PyObject* objects) {
  while (has_pending(self) && PyList_GET_SIZE(objects) < max) {
    const Pending next = self.pending->front();
    if (next.what == Pending::What::kError) {
      if (PyList_GET_SIZE(objects) > 0) return true;
      self.pending->pop_front();
      raise_taken(next.value);
      return false;
    }
    self.pending->pop_front();
    PyObject* made = next.value;
    if (next.what == Pending::What::kMessage) {
      const Bytes message(reinterpret_cast<const std::byte*>(PyBytes_AS_STRING(next.value)),
                          static_cast<std::size_t>(PyBytes_GET_SIZE(next.value)));
      made = decode(self, message, nullptr);
      if (made == nullptr) {
        if (PyErr_ExceptionMatches(PyExc_Exception)) {
          self.pending->push_front({Pending::What::kError, taken_error(message)});
          Py_DECREF(next.value);
          continue;
        }
        self.pending->push_front(next);
        for (Py_ssize_t j = PyList_GET_SIZE(objects); j-- > 0;) {
          self.pending->push_front({Pending::What::kObject, Py_NewRef(PyList_GET_ITEM(objects, j))});
        }
        return false;
      }
      Py_DECREF(next.value);
    }
    const int appended = PyList_Append(objects, made);
    Py_DECREF(made);
    if (appended != 0) return false;
  }
  return true;
}

// ---- Taking

bool raise_unless_ok(const QueueObject& self, Outcome outcome, bool waited) {
  switch (outcome) {
    case Outcome::kOk:
      return true;
    case Outcome::kTimedOut:
    case Outcome::kInterrupted:
      if (waited) {
        PyErr_SetString(empty_class(), "the queue stayed empty");
      } else {
        PyErr_SetNone(empty_class());
      }
      return false;
    case Outcome::kClosed:
      raise_shut_down(self);
      return false;
    default:
      raise_broken(self);
      return false;
  }
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
  const auto load = [&](Bytes message) -> PyObject* {
    PyObject* made = decode(self, message, nullptr);
    if (made != nullptr) return made;
    if (PyErr_ExceptionMatches(PyExc_Exception)) {
      raise_taken(taken_error(message));
      return nullptr;
    }
    // A Ctrl-C amid loads: the next call gets the message.
    PyObject* type = nullptr;
    PyObject* value = nullptr;
    PyObject* traceback = nullptr;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject* raw = PyBytes_FromStringAndSize(reinterpret_cast<const char*>(message.data()),
                                              static_cast<Py_ssize_t>(message.size()));
    if (raw != nullptr) pending_of(self).push_back({Pending::What::kMessage, raw});
    PyErr_Restore(type, value, traceback);
    return nullptr;
  };
  if (!are_large(*self.queue)) {
    BufferLease buffer;
    const Outcome outcome = self.queue->get(*buffer, passed_deadline());
    if (outcome == Outcome::kOk) return load((*buffer)[0]);
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
  return load(taken.batch[0]);
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
      if (!decode_all(
              self, count, [&](std::size_t i) { return taken.batch[i]; }, nullptr, objects))
        return false;
    } else {
      BufferLease buffer;
      outcome = self.queue->get_many(left, kChunkBytes, *buffer, passed_deadline());
      count = outcome == Outcome::kOk ? (*buffer).size() : 0;
      if (!decode_all(
              self, count, [&](std::size_t i) { return (*buffer)[i]; }, nullptr, objects))
        return false;
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
      auto at = [&](std::size_t i) { return taken.batch[i]; };
      if (!decode_all(self, taken.batch.size(), at, nullptr, objects)) return fail();
      return finish(self, objects);
    }
  }
  raise_unless_ok(self, outcome, patience.block);
  return fail();
}

PyObject* get_in_place(PyObject* object, std::int64_t max, const Patience& patience) {
  QueueObject& self = queue_of(object);
  auto* slab = reinterpret_cast<Slab*>(slab_type->tp_alloc(slab_type, 0));
  if (slab == nullptr) return nullptr;
  slab->taken = new MessageQueue::Taken;
  slab->queue = Py_NewRef(object);
  auto* owner = reinterpret_cast<PyObject*>(slab);
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
    *slab->taken = std::move(taken.batch);
    auto at = [&](std::size_t i) { return (*slab->taken)[i]; };
    if (!decode_all(self, slab->taken->size(), at, owner, objects)) return fail();
    objects = finish(self, objects);
    if (objects == nullptr) return fail();
  }
  auto* batch = reinterpret_cast<MessageBatch*>(batch_type->tp_alloc(batch_type, 0));
  if (batch == nullptr) return fail();
  batch->objects = objects;
  batch->slab = owner;
  return reinterpret_cast<PyObject*>(batch);
}

// ---- MessageBatch's methods

PyObject* batch_objects(PyObject* self) {
  PyObject* objects = reinterpret_cast<MessageBatch*>(self)->objects;
  if (objects == nullptr) PyErr_SetString(PyExc_ValueError, "the batch is released");
  return objects;
}

void batch_drop(MessageBatch* batch) {
  Py_CLEAR(batch->objects);
  if (batch->slab != nullptr) reinterpret_cast<Slab*>(batch->slab)->taken->release();
  Py_CLEAR(batch->slab);
}

PyObject* batch_release(PyObject* self, PyObject*) {
  batch_drop(reinterpret_cast<MessageBatch*>(self));
  Py_RETURN_NONE;
}

PyObject* batch_enter(PyObject* self, PyObject*) { return batch_objects(self) ? Py_NewRef(self) : nullptr; }

PyObject* batch_exit(PyObject* self, PyObject*) { return batch_release(self, nullptr); }

Py_ssize_t batch_length(PyObject* self) {
  PyObject* objects = reinterpret_cast<MessageBatch*>(self)->objects;
  return objects != nullptr ? PyList_GET_SIZE(objects) : 0;
}

PyObject* batch_item(PyObject* self, PyObject* index) {
  PyObject* objects = batch_objects(self);
  return objects != nullptr ? PyObject_GetItem(objects, index) : nullptr;
}

PyObject* batch_iterate(PyObject* self) {
  PyObject* objects = batch_objects(self);
  return objects != nullptr ? PyObject_GetIter(objects) : nullptr;
}

int batch_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(reinterpret_cast<MessageBatch*>(self)->objects);
  return 0;
}

int batch_clear(PyObject* self) {
  Py_CLEAR(reinterpret_cast<MessageBatch*>(self)->objects);
  return 0;
}

void batch_dealloc(PyObject* self) {
  auto* batch = reinterpret_cast<MessageBatch*>(self);
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  // Arrays that still look into the queue keep the slab.
  Py_CLEAR(batch->objects);
  Py_CLEAR(batch->slab);
  type->tp_free(self);
  Py_DECREF(type);
}

template <class Function>
void* slot(Function* function) {
  return reinterpret_cast<void*>(function);
}

// block, timeout and max_messages_to_get. False with an exception set.
bool read_max(PyObject* value, std::int64_t& max) {
  if (value == nullptr || value == Py_None) return true;
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
  if (number == -1 && PyErr_Occurred()) return false;
  if (overflow < 0 || (overflow == 0 && number < 1)) {
    PyErr_Format(PyExc_ValueError, "max_messages_to_get is %S; expected at least 1", value);
    return false;
  }
  max = overflow > 0 ? kAll : number;
  return true;
}

PyObject* get_many(PyObject* object, std::int64_t max, const Patience& patience, PyObject* copy) {
  const int copies = copy == nullptr ? 1 : PyObject_IsTrue(copy);
  if (copies < 0) return nullptr;
  return guarded([&] {
    return copies ? get_copies(queue_of(object), max, patience) : get_in_place(object, max, patience);
  });
}

}  // namespace

void drop_pending(QueueObject& self) {
  if (self.pending == nullptr) return;
  std::unique_ptr<std::deque<Pending>> dropped(self.pending);
  self.pending = nullptr;
  for (const Pending& pending : *dropped) Py_DECREF(pending.value);
}

PyObject* queue_get(PyObject* object, PyObject* const* arguments, Py_ssize_t given, PyObject* keywords) {
  static const char* const names[] = {"block", "timeout"};
  PyObject* values[2] = {nullptr, nullptr};
  QueueObject& self = queue_of(object);
  Patience patience;
  if (!read_arguments("get", names, 2, 0, arguments, given, keywords, values) || !is_open(self) ||
      !patience.read(self, values[0], values[1])) {
    return nullptr;
  }
  return guarded([&] { return get_one(self, patience); });
}

PyObject* queue_get_nowait(PyObject* object, PyObject*) {
  QueueObject& self = queue_of(object);
  if (!is_open(self)) return nullptr;
  return guarded([&] { return get_one(self, Patience{.block = false}); });
}

PyObject* queue_get_many(PyObject* object, PyObject* const* arguments, Py_ssize_t given, PyObject* keywords) {
  static const char* const names[] = {"block", "timeout", "max_messages_to_get", "copy"};
  PyObject* values[4] = {nullptr, nullptr, nullptr, nullptr};
  QueueObject& self = queue_of(object);
  Patience patience;
  std::int64_t max = kAll;
  if (!read_arguments("get_many", names, 4, 0, arguments, given, keywords, values) || !is_open(self) ||
      !patience.read(self, values[0], values[1]) || !read_max(values[2], max)) {
    return nullptr;
  }
  return get_many(object, max, patience, values[3]);
}

PyObject* queue_get_many_nowait(PyObject* object, PyObject* const* arguments, Py_ssize_t given,
                                PyObject* keywords) {
  static const char* const names[] = {"max_messages_to_get", "copy"};
  PyObject* values[2] = {nullptr, nullptr};
  std::int64_t max = kAll;
  if (!read_arguments("get_many_nowait", names, 2, 0, arguments, given, keywords, values) ||
      !is_open(queue_of(object)) || !read_max(values[0], max)) {
    return nullptr;
  }
  return get_many(object, max, Patience{.block = false}, values[1]);
}

bool init_batch(PyObject* module) {
  static PyType_Slot slab_slots[] = {{Py_tp_dealloc, slot(&slab_dealloc)}, {0, nullptr}};
  static PyType_Spec slab_spec = {"gristmill._core.MessageSlab", sizeof(Slab), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slab_slots};
  slab_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&slab_spec));

  static PyMethodDef methods[] = {
      {"release", &batch_release, METH_NOARGS,
       "release($self, /)\n--\n\nFrees the messages' space. Idempotent. Arrays must not be used afterwards."},
      {"__enter__", &batch_enter, METH_NOARGS, "__enter__($self, /)\n--\n\n"},
      {"__exit__", &batch_exit, METH_VARARGS, "__exit__($self, /, *args)\n--\n\nReleases."},
      {nullptr, nullptr, 0, nullptr},
  };
  static PyType_Slot slots[] = {
      {Py_tp_dealloc, slot(&batch_dealloc)},
      {Py_tp_traverse, slot(&batch_traverse)},
      {Py_tp_clear, slot(&batch_clear)},
      {Py_tp_methods, methods},
      {Py_tp_iter, slot(&batch_iterate)},
      {Py_mp_length, slot(&batch_length)},
      {Py_mp_subscript, slot(&batch_item)},
      {Py_tp_doc,
       const_cast<char*>(
           "Messages taken without a copy: a sequence whose arrays and memoryviews look into the queue.\n\n"
           "Their space is free again after release(), after the `with` block, or when the batch and all its "
           "views are gone; views must not be used after an explicit release.")},
      {0, nullptr},
  };
  static PyType_Spec spec = {"gristmill._core.MessageBatch", sizeof(MessageBatch), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_HAVE_GC,
                             slots};
  batch_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return slab_type != nullptr && batch_type != nullptr &&
         PyModule_AddObjectRef(module, "MessageBatch", reinterpret_cast<PyObject*>(batch_type)) == 0;
}

}  // namespace gristmill::python
