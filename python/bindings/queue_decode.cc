#include "python/bindings/queue_decode.h"

#include <unistd.h>

#include <memory>

#include "python/bindings/kept_error.h"
#include "python/bindings/memory_region.h"
#include "python/bindings/message_codec.h"
#include "python/bindings/pickling.h"

namespace gristmill::python {
namespace {

using Bytes = std::span<const std::byte>;

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

PyObject* bytes_of(Bytes message) {
  return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(message.data()),
                                   static_cast<Py_ssize_t>(message.size()));
}

// The exception that is set, with the message in its attribute `payload`; it is not set any more.
PyObject* taken_error(Bytes message) {
  PyObject* error = nullptr;
  {
    KeptError kept;
    error = Py_XNewRef(kept.value());
    PyObject* payload = bytes_of(message);
    if (payload == nullptr || PyObject_SetAttrString(error, "payload", payload) != 0) PyErr_Clear();
    Py_XDECREF(payload);
  }
  PyErr_Clear();
  return error;
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

// Messages [0, count) into `objects`: see decode_copied. done(i) after each.
template <class At, class Done>
bool decode_all(QueueObject& self, std::size_t count, At&& at, PyObject* owner, PyObject* objects,
                Done&& done) {
  for (std::size_t i = 0; i < count; ++i) {
    PyObject* made = decode(self, at(i), owner);
    if (made != nullptr) {
      const int appended = PyList_Append(objects, made);
      Py_DECREF(made);
      if (appended == 0) {
        done(i);
        continue;
      }
    }
    if (PyErr_ExceptionMatches(PyExc_Exception)) {
      pending_of(self).push_back({Pending::What::kError, taken_error(at(i))});
      continue;
    }
    const KeptError interrupted;
    auto& pending = pending_of(self);
    for (Py_ssize_t j = 0; owner == nullptr && j < PyList_GET_SIZE(objects); ++j) {
      pending.push_back({Pending::What::kObject, Py_NewRef(PyList_GET_ITEM(objects, j))});
    }
    for (std::size_t j = owner == nullptr ? i : 0; j < count; ++j) {
      PyObject* raw = bytes_of(at(j));
      if (raw != nullptr) pending.push_back({Pending::What::kMessage, raw});
    }
    PyErr_Clear();
    return false;
  }
  return true;
}

void keep(std::size_t) {}

}  // namespace

PyObject* decode_one(QueueObject& self, Bytes message) {
  PyObject* made = decode(self, message, nullptr);
  if (made != nullptr) return made;
  if (PyErr_ExceptionMatches(PyExc_Exception)) {
    raise_taken(taken_error(message));
    return nullptr;
  }
  const KeptError interrupted;
  PyObject* raw = bytes_of(message);
  if (raw != nullptr) pending_of(self).push_back({Pending::What::kMessage, raw});
  PyErr_Clear();
  return nullptr;
}

bool decode_copied(QueueObject& self, const MessageBuffer& messages, PyObject* objects) {
  const auto at = [&](std::size_t i) { return messages[i]; };
  return decode_all(self, messages.size(), at, nullptr, objects, keep);
}

bool decode_taken(QueueObject& self, MessageQueue::Taken& messages, PyObject* objects) {
  // Not so small that a waiting producer is woken for each message.
  const std::uint64_t enough = self.queue->capacity_bytes() / 4;
  std::uint64_t piece = 0;
  const auto at = [&](std::size_t i) { return messages[i]; };
  return decode_all(self, messages.size(), at, nullptr, objects, [&](std::size_t i) {
    piece += messages[i].size();
    if (piece < enough) return;
    messages.release_first(i + 1);
    piece = 0;
  });
}

bool decode_in_place(QueueObject& self, const MessageQueue::Taken& messages, PyObject* owner,
                     PyObject* objects) {
  const auto at = [&](std::size_t i) { return messages[i]; };
  return decode_all(self, messages.size(), at, owner, objects, keep);
}

bool has_pending(QueueObject& self) {
  if (self.pending == nullptr || self.pending->empty()) return false;
  if (self.pending_pid != getpid()) {
    drop_pending(self);  // the parent's
    return false;
  }
  return true;
}

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

void drop_pending(QueueObject& self) {
  if (self.pending == nullptr) return;
  std::unique_ptr<std::deque<Pending>> dropped(self.pending);
  self.pending = nullptr;
  for (const Pending& pending : *dropped) Py_DECREF(pending.value);
}

}  // namespace gristmill::python
