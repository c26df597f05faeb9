// Putting: an object becomes bytes in memory of this process, and goes in with one lock.

#include <cstring>
#include <vector>

#include "python/bindings/kept_error.h"
#include "python/bindings/message_arrays.h"
#include "python/bindings/queue_arguments.h"
#include "python/bindings/queue_encode.h"
#include "python/bindings/queue_object.h"

namespace gristmill::python {
namespace {

using Outcome = MessageQueue::Outcome;
using Bytes = std::span<const std::byte>;

// Messages in a row are put when they have come to so much.
constexpr std::size_t kChunkBytes = std::size_t{1} << 20;
constexpr std::size_t kWithoutGil = 256 * 1024;

PyObject* raise_too_large(const QueueObject& self, std::uint64_t bytes) {
  PyErr_Format(
      PyExc_ValueError,
      "a message of %llu bytes can never fit this queue, which holds messages of up to %llu bytes: create "
      "it with a larger max_size_bytes",
      static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(self.queue->largest_message()));
  return nullptr;
}

// queue.Full, with who keeps space when somebody does, and, for put_many, what went in.
PyObject* raise_full(const QueueObject& self, bool waited, std::int64_t put, std::int64_t of) {
  if (!waited && of == 1) {
    PyErr_SetNone(full_class());
    return nullptr;
  }
  std::string text = "the queue ";
  text += waited ? "stayed full" : "is full";
  text += ": " + std::to_string(self.queue->size()) + " messages, " +
          std::to_string(self.queue->bytes_used()) + " of " + std::to_string(self.queue->capacity_bytes()) +
          " bytes";
  if (of > 1) text += "; " + std::to_string(put) + " of the " + std::to_string(of) + " messages went in";
  for (const MessageHolder& holder : self.queue->holders()) {
    text += "; process " + std::to_string(holder.pid) + " keeps " + std::to_string(holder.bytes) +
            " bytes (" + std::to_string(holder.taken) + " messages taken and not released, " +
            std::to_string(holder.reserved) + " being written)";
  }
  PyErr_SetString(full_class(), text.c_str());
  return nullptr;
}

// Adds `put` to the exception that is set: how many messages went in.
void note_put(std::int64_t put) {
  KeptError kept;
  PyObject* value = kept.value();
  PyObject* count = PyLong_FromLongLong(put);
  if (value == nullptr || count == nullptr || PyObject_SetAttrString(value, "put", count) != 0) PyErr_Clear();
  Py_XDECREF(count);
}

// Tries, then waits. `attempt` adds to `put`. False with an exception set unless the outcome is kOk.
template <class Attempt>
bool put_patiently(QueueObject& self, const Patience& patience, Deadline* deadline, bool without_gil,
                   std::int64_t of, const std::int64_t& put, Attempt&& attempt) {
  // Its place among those who wait for space, from one slice to the next.
  MessageTurn turn = self.queue->turn();
  Outcome outcome;
  if (without_gil) {
    PyThreadState* state = PyEval_SaveThread();
    outcome = attempt(passed_deadline(), &turn);
    PyEval_RestoreThread(state);
  } else {
    outcome = attempt(passed_deadline(), &turn);
  }
  if (outcome == Outcome::kOk) return true;
  if (patience.block && (outcome == Outcome::kTimedOut || outcome == Outcome::kInterrupted)) {
    if (!wait_for(self, *deadline, [&](Deadline slice) { return outcome = attempt(slice, &turn); }))
      return false;
  }
  return is_done(self, outcome, [&] { raise_full(self, patience.block, put, of); });
}

// A message of parts, the last of `out`: [begin, end of the buffer) and what lies elsewhere.
std::vector<Bytes> parts_of(const Outgoing& out, std::size_t begin) {
  std::vector<Bytes> parts;
  std::size_t at = begin;
  const std::byte* data = out.bytes_data();
  for (const auto& part : out.parts()) {
    if (part.after > at) parts.emplace_back(data + at, part.after - at);
    at = part.after;
    parts.emplace_back(static_cast<const std::byte*>(part.data), part.bytes);
  }
  if (out.end_of_buffer() > at) parts.emplace_back(data + at, out.end_of_buffer() - at);
  return parts;
}

// Strided arrays go straight into the queue's memory, element by element.
bool fill(const std::vector<Bytes>& parts, const Outgoing& out, std::span<std::byte> into) {
  std::byte* at = into.data();
  auto strided = out.parts().begin();
  for (const Bytes& part : parts) {
    if (part.data() == nullptr) {
      while (strided->strided == nullptr) ++strided;
      if (!copy_strided((strided++)->strided, at)) return false;
    } else {
      std::memcpy(at, part.data(), part.size());
    }
    at += part.size();
  }
  return true;
}

bool put_parts(QueueObject& self, const Outgoing& out, std::size_t begin, const Patience& patience,
               Deadline* deadline) {
  const std::vector<Bytes> parts = parts_of(out, begin);
  std::size_t bytes = 0;
  for (const Bytes& part : parts) bytes += part.size();
  if (bytes > self.queue->largest_message()) return raise_too_large(self, bytes) != nullptr;
  std::int64_t put = 0;
  if (!out.has_strided()) {
    return put_patiently(
        self, patience, deadline, bytes >= kWithoutGil, 1, put,
        [&](Deadline until, MessageTurn* turn) { return self.queue->put_parts(parts, until, turn).outcome; });
  }
  MessageQueue::Reservation reservation;
  if (!put_patiently(self, patience, deadline, false, 1, put, [&](Deadline until, MessageTurn* turn) {
        auto reserved = self.queue->reserve(bytes, until, turn);
        reservation = std::move(reserved.reservation);
        return reserved.outcome;
      })) {
    return false;
  }
  if (!fill(parts, out, reservation.bytes())) return false;
  reservation.commit();
  return true;
}

PyObject* put_one(QueueObject& self, PyObject* object, const Patience& patience,
                  std::size_t* bytes = nullptr) {
  OutgoingLease out;
  if (!encode(self, object, *out)) return nullptr;
  if (bytes != nullptr) *bytes = out->message_bytes();
  Deadline deadline = patience.block ? patience.deadline() : passed_deadline();
  if (!out->parts().empty()) {
    if (!put_parts(self, *out, 0, patience, &deadline)) return nullptr;
    Py_RETURN_NONE;
  }
  const Bytes message(out->bytes_data(), out->end_of_buffer());
  if (message.size() > self.queue->largest_message()) return raise_too_large(self, message.size());
  const std::int64_t put = 0;
  if (!put_patiently(
          self, patience, &deadline, message.size() >= kWithoutGil, 1, put,
          [&](Deadline until, MessageTurn* turn) { return self.queue->put(message, until, turn).outcome; })) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

// A put_many under way.
class Batch {
 public:
  Batch(QueueObject& self, const Patience& patience, std::int64_t of)
      : self_(self),
        patience_(patience),
        deadline_(patience.block ? patience.deadline() : passed_deadline()),
        of_(of) {}

  std::int64_t put() const { return put_; }

  // False with an exception set: what was added before it is in.
  bool add(PyObject* object) {
    if (!encode(self_, object, *out_)) {
      // The failing message is reported when the others are in.
      if (!PyErr_ExceptionMatches(PyExc_Exception)) return false;
      ++failed_;
      if (error_type_ == nullptr) {
        PyErr_Fetch(&error_type_, &error_value_, &error_traceback_);
      } else {
        PyErr_Clear();
      }
      return true;
    }
    const std::uint64_t bytes = out_->message_bytes();
    if (bytes > self_.queue->largest_message()) {
      raise_too_large(self_, bytes);
      return false;
    }
    if (!out_->parts().empty()) {
      const std::size_t begin = out_->begin_of_message();
      if (!flush(begin)) return false;
      if (!put_parts(self_, *out_, begin, patience_, &deadline_)) return false;
      ++put_;
      out_->clear();
      return true;
    }
    out_->end_message();
    return out_->end_of_buffer() < kChunkBytes || finish();
  }

  // Puts what is left.
  bool finish() {
    if (!flush(out_->end_of_buffer())) return false;
    out_->clear();
    return true;
  }

  // The first error of dumps, if there was one.
  bool raise_failed() {
    if (error_type_ == nullptr) return false;
    PyErr_NormalizeException(&error_type_, &error_value_, &error_traceback_);
    PyErr_Restore(error_type_, error_value_, error_traceback_);
    error_type_ = error_value_ = error_traceback_ = nullptr;
    return true;
  }

  ~Batch() {
    Py_XDECREF(error_type_);
    Py_XDECREF(error_value_);
    Py_XDECREF(error_traceback_);
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

 private:
  // The finished messages, which lie in [0, end).
  bool flush(std::size_t end) {
    std::span<const std::uint64_t> ends = out_->ends();
    if (ends.empty()) return true;
    std::vector<std::uint64_t> rest;  // those that did not go in at once
    Bytes packed(out_->bytes_data(), end);
    std::int64_t before = put_;
    return put_patiently(self_, patience_, &deadline_, packed.size() >= kWithoutGil, of_, put_,
                         [&](Deadline until, MessageTurn* turn) {
                           if (const auto done = static_cast<std::size_t>(put_ - before); done > 0) {
                             const std::uint64_t begin = ends[done - 1];
                             std::vector<std::uint64_t> next(ends.begin() + static_cast<std::ptrdiff_t>(done),
                                                             ends.end());
                             for (auto& at : next) at -= begin;
                             packed = packed.subspan(begin);
                             rest = std::move(next);
                             ends = rest;
                             before = put_;
                           }
                           const auto result = self_.queue->put_packed(packed, ends, until, turn);
                           put_ += result.put;
                           return result.outcome;
                         });
  }

  QueueObject& self_;
  const Patience& patience_;
  Deadline deadline_;
  std::int64_t of_;
  OutgoingLease out_;
  std::int64_t put_ = 0;
  std::int64_t failed_ = 0;
  PyObject* error_type_ = nullptr;
  PyObject* error_value_ = nullptr;
  PyObject* error_traceback_ = nullptr;
};

PyObject* put_all(QueueObject& self, PyObject* objects, const Patience& patience) {
  PyObject* sequence = PySequence_Fast(objects, "put_many takes an iterable of messages");
  if (sequence == nullptr) return nullptr;
  bool good = true;
  {
    Batch batch(self, patience, PySequence_Fast_GET_SIZE(sequence));
    // Serialising may run code that changes the list.
    for (Py_ssize_t i = 0; good && i < PySequence_Fast_GET_SIZE(sequence); ++i) {
      PyObject* object = Py_NewRef(PySequence_Fast_GET_ITEM(sequence, i));
      good = batch.add(object);
      Py_DECREF(object);
    }
    good = good && batch.finish();
    if (good && batch.raise_failed()) good = false;
    if (!good) note_put(batch.put());
  }
  Py_DECREF(sequence);
  if (!good) return nullptr;
  Py_RETURN_NONE;
}

}  // namespace

PyObject* queue_put(PyObject* object, PyObject* const* arguments, Py_ssize_t given, PyObject* keywords) {
  static constexpr const char* kNames[] = {"obj", "block", "timeout"};
  PyObject* values[3] = {};
  QueueObject& self = queue_of(object);
  Patience patience;
  if (!QueueCall{arguments, given, keywords}.read(self, "put", kNames, 1, values, patience)) return nullptr;
  return guarded([&] { return put_one(self, values[0], patience); });
}

PyObject* queue_try_put(PyObject* object, PyObject* message) {
  QueueObject& self = queue_of(object);
  if (!is_open(self)) return nullptr;
  return guarded([&]() -> PyObject* {
    std::size_t bytes = 0;
    PyObject* done = put_one(self, message, Patience{.block = false}, &bytes);
    if (done == nullptr) {
      if (!PyErr_ExceptionMatches(full_class())) return nullptr;
      PyErr_Clear();
      return PyLong_FromSize_t(bytes + 1);
    }
    Py_DECREF(done);
    return PyLong_FromLong(0);
  });
}

PyObject* queue_put_nowait(PyObject* object, PyObject* message) {
  QueueObject& self = queue_of(object);
  if (!is_open(self)) return nullptr;
  return guarded([&] { return put_one(self, message, Patience{.block = false}); });
}

PyObject* queue_put_many(PyObject* object, PyObject* const* arguments, Py_ssize_t given, PyObject* keywords) {
  static constexpr const char* kNames[] = {"xs", "block", "timeout"};
  PyObject* values[3] = {};
  QueueObject& self = queue_of(object);
  Patience patience;
  if (!QueueCall{arguments, given, keywords}.read(self, "put_many", kNames, 1, values, patience))
    return nullptr;
  return guarded([&] { return put_all(self, values[0], patience); });
}

PyObject* queue_put_many_nowait(PyObject* object, PyObject* messages) {
  QueueObject& self = queue_of(object);
  if (!is_open(self)) return nullptr;
  return guarded([&] { return put_all(self, messages, Patience{.block = false}); });
}

}  // namespace gristmill::python
