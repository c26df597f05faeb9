#include "python/bindings/queue_object.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <structmember.h>
#include <unistd.h>

#include <cstddef>
#include <string>

#include "core/segment.h"
#include "python/bindings/bindings.h"
#include "python/bindings/queue_arguments.h"
#include "python/bindings/type_tables.h"

namespace gristmill::python {
namespace {

PyObject* exception_class(const char* name) {
  PyObject* module = PyImport_ImportModule("queue");
  PyObject* found = module != nullptr ? PyObject_GetAttrString(module, name) : nullptr;
  Py_XDECREF(module);
  return found;
}

Overflow overflow_named(const std::string& name) {
  if (name == "block") return Overflow::kBlock;
  if (name == "drop_oldest") return Overflow::kDropOldest;
  if (name == "latest") return Overflow::kLatest;
  throw py::value_error("overflow is '" + name + "'; expected 'block', 'drop_oldest' or 'latest'");
}

const char* overflow_name(Overflow overflow) {
  switch (overflow) {
    case Overflow::kDropOldest:
      return "drop_oldest";
    case Overflow::kLatest:
      return "latest";
    case Overflow::kBlock:
      break;
  }
  return "block";
}

// What each helper of Python's own needs, through pybind11: none of it is called for every message.
QueueObject& opened(const py::object& object) {
  QueueObject& self = queue_of(object.ptr());
  if (self.queue == nullptr) throw py::value_error("the queue was not created: call Queue.__init__ first");
  return self;
}

void open(QueueObject& self, std::unique_ptr<MessageQueue> queue) {
  if (self.queue != nullptr) throw py::value_error("the queue is open already");
  self.queue = queue.release();
  self.queue->return_on_signals(true);
}

void create(const py::object& object, const std::string& name, std::uint64_t max_messages,
            std::uint64_t max_bytes, const std::string& overflow) {
  MessageQueueOptions options;
  options.max_messages = max_messages;
  options.max_size_bytes = max_bytes;
  options.overflow = overflow_named(overflow);
  open(queue_of(object.ptr()), MessageQueue::create(name, options));
}

void attach(const py::object& object, const std::string& name, double timeout_s) {
  std::unique_ptr<MessageQueue> queue;
  {
    py::gil_scoped_release release;
    queue = MessageQueue::attach(name, Deadline::in(std::chrono::duration<double>(timeout_s)));
  }
  open(queue_of(object.ptr()), std::move(queue));
}

void configure(const py::object& object, const std::string& serializer, const py::object& loads,
               const py::object& dumps, bool loads_views, const py::object& default_timeout) {
  QueueObject& self = queue_of(object.ptr());
  self.tensors_by_handle = serializer == "pickle by handle";
  self.serializer = serializer == "pickle" || self.tensors_by_handle ? Serializer::kPickle
                    : serializer == "raw"                            ? Serializer::kRaw
                                                                     : Serializer::kCustom;
  if (self.serializer == Serializer::kCustom) {
    Py_XSETREF(self.loads, py::object(loads).release().ptr());
    Py_XSETREF(self.dumps, py::object(dumps).release().ptr());
  }
  self.loads_views = loads_views;
  if (!read_seconds(default_timeout.ptr(), self.default_timeout)) throw py::error_already_set();
}

py::dict statistics(const py::object& object) {
  const MessageQueueStatistics all = opened(object).queue->statistics();
  py::dict made;
  made["puts"] = all.puts;
  made["gets"] = all.gets;
  made["put_waits"] = all.put_waits;
  made["get_waits"] = all.get_waits;
  made["skipped"] = all.skipped;
  made["dropped"] = all.dropped;
  made["owner_deaths"] = all.owner_deaths;
  return made;
}

py::list holders(const py::object& object) {
  py::list made;
  for (const MessageHolder& holder : opened(object).queue->holders()) {
    py::dict one;
    one["pid"] = holder.pid;
    one["taken"] = holder.taken;
    one["reserved"] = holder.reserved;
    one["bytes"] = holder.bytes;
    made.append(one);
  }
  return made;
}

std::int64_t pending_count(const py::object& object) {
  QueueObject& self = queue_of(object.ptr());
  std::int64_t count = 0;
  if (self.pending != nullptr && self.pending_pid == getpid()) {
    for (const Pending& pending : *self.pending) count += pending.what != Pending::What::kError;
  }
  return count;
}

// Waits in slices, so that the caller's thread can end with its event loop. Anybody's thread.
bool wait_readable(const py::object& object, double timeout_s) {
  MessageQueue& queue = *opened(object).queue;
  const Deadline deadline = Deadline::in(std::chrono::duration<double>(timeout_s));
  py::gil_scoped_release release;
  return queue.wait_readable(deadline) != MessageQueue::Outcome::kTimedOut;
}

bool wait_writable(const py::object& object, std::uint64_t needed, double timeout_s) {
  MessageQueue& queue = *opened(object).queue;
  const Deadline deadline = Deadline::in(std::chrono::duration<double>(timeout_s));
  py::gil_scoped_release release;
  return queue.wait_writable(needed - 1, deadline) != MessageQueue::Outcome::kTimedOut;
}

bool has_room(const MessageQueue& queue) {
  // The smallest message takes its word, rounded up.
  constexpr std::uint64_t kSmallest = 16;
  const std::uint64_t most = queue.options().max_messages;
  const bool counted = most == 0 || static_cast<std::uint64_t>(queue.size()) < most;
  return counted && queue.capacity_bytes() - queue.bytes_used() >= kSmallest;
}

void queue_dealloc(PyObject* object) {
  QueueObject& self = queue_of(object);
  PyTypeObject* type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  if (self.weak_references != nullptr) PyObject_ClearWeakRefs(object);
  drop_pending(self);
  delete self.queue;
  self.queue = nullptr;
  Py_CLEAR(self.loads);
  Py_CLEAR(self.dumps);
  type->tp_free(object);
  Py_DECREF(type);
}

int queue_traverse(PyObject* object, visitproc visit, void* arg) {
  QueueObject& self = queue_of(object);
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self.loads);
  Py_VISIT(self.dumps);
  return 0;
}

int queue_clear(PyObject* object) {
  QueueObject& self = queue_of(object);
  Py_CLEAR(self.loads);
  Py_CLEAR(self.dumps);
  return 0;
}

}  // namespace

bool is_open(QueueObject& self) {
  if (self.queue != nullptr && !self.closed) return true;
  PyErr_Format(
      PyExc_ValueError,
      self.queue == nullptr ? "the queue was not created: call Queue.__init__ first" : "Queue %R is closed",
      reinterpret_cast<PyObject*>(&self));
  return false;
}

Deadline passed_deadline() {
  static const Deadline passed = Deadline::now();
  return passed;
}

PyObject* full_class() {
  static PyObject* made = exception_class("Full");
  return made;
}

PyObject* empty_class() {
  static PyObject* made = exception_class("Empty");
  return made;
}

void raise_ended(const QueueObject& self, bool closed) {
  const char* text = closed ? "queue %s is closed: it was shut down" : "queue %s is damaged beyond repair";
  PyErr_Format(closed ? PyExc_ValueError : PyExc_RuntimeError, text, self.queue->name().c_str());
}

void bind_queue_rest(const pybind11::object& type) {
  const auto add = [&](const char* name, auto&& function, auto&&... extra) {
    type.attr(name) = py::cpp_function(std::forward<decltype(function)>(function), py::name(name),
                                       py::is_method(type), std::forward<decltype(extra)>(extra)...);
  };
  add("_create", &create, py::arg("name"), py::arg("max_messages"), py::arg("max_bytes"),
      py::arg("overflow"));
  add("_attach", &attach, py::arg("name"), py::arg("timeout"));
  add("_configure", &configure, py::arg("serializer"), py::arg("loads"), py::arg("dumps"),
      py::arg("loads_views"), py::arg("default_timeout"));
  add("_wait_readable", &wait_readable, py::arg("timeout"),
      "Whether there is something to take; waits for it, and takes nothing.");
  add("_wait_writable", &wait_writable, py::arg("needed"), py::arg("timeout"),
      "Whether what _try_put could not put, with this result, may fit now; waits for it.");
  add("_close", [](const py::object& self) { queue_of(self.ptr()).closed = true; });
  add("_closed", [](const py::object& self) { return queue_of(self.ptr()).closed; });
  add("_shut_down", [](const py::object& self) { opened(self).queue->close(); });
  add("_is_shut_down", [](const py::object& self) { return opened(self).queue->closed(); });
  add("_size", [](const py::object& self) { return opened(self).queue->size() + pending_count(self); });
  add("_room", [](const py::object& self) { return has_room(*opened(self).queue); });
  add("_bytes_used", [](const py::object& self) { return opened(self).queue->bytes_used(); });
  add("_capacity_bytes", [](const py::object& self) { return opened(self).queue->capacity_bytes(); });
  add("_largest_message", [](const py::object& self) { return opened(self).queue->largest_message(); });
  add("_name", [](const py::object& self) { return opened(self).queue->name(); });
  add("_max_messages", [](const py::object& self) { return opened(self).queue->options().max_messages; });
  add("_max_bytes", [](const py::object& self) { return opened(self).queue->options().max_size_bytes; });
  add("_overflow",
      [](const py::object& self) { return overflow_name(opened(self).queue->options().overflow); });
  add("_statistics", &statistics);
  add("_holders", &holders);
  add("_recover", [](const py::object& self) { return opened(self).queue->recover(); });
  add("_unlink", [](const py::object& self) { opened(self).queue->unlink(); });
}

PyTypeObject* make_queue_type() {
  constexpr int kFast = METH_FASTCALL | METH_KEYWORDS;
  static PyMethodDef methods[] = {
      {"put", method(&queue_put), kFast,
       "put($self, obj, block=True, timeout=None)\n--\n\nPuts one object. Blocks while the queue is full, at "
       "most "
       "`timeout` seconds: queue.Full then. ValueError for what can never fit, and after close()."},
      {"put_nowait", &queue_put_nowait, METH_O,
       "put_nowait($self, obj, /)\n--\n\nputs without waiting: queue.Full when there is no space."},
      {"_try_put", &queue_try_put, METH_O,
       "_try_put($self, obj, /)\n--\n\nputs without waiting: 0, or, when there is no space, one more than "
       "its bytes."},
      {"put_many", method(&queue_put_many), kFast,
       "put_many($self, xs, block=True, timeout=None)\n--\n\nPuts the objects of an iterable, in order, in "
       "parts "
       "when there is not space for all.\n\nAny exception has `put`: how many went in, from the front. "
       "Objects that "
       "cannot be serialised are left out, and the first such error is raised when the others are in."},
      {"put_many_nowait", &queue_put_many_nowait, METH_O,
       "put_many_nowait($self, xs, /)\n--\n\nput_many without waiting."},
      {"get", method(&queue_get), kFast,
       "get($self, block=True, timeout=None)\n--\n\nTakes one object. Waits while the queue is empty, at "
       "most "
       "`timeout` seconds: queue.Empty then."},
      {"get_nowait", &queue_get_nowait, METH_NOARGS,
       "get_nowait($self, /)\n--\n\nTakes one object if there is one: queue.Empty otherwise."},
      {"get_many", method(&queue_get_many), kFast,
       "get_many($self, block=True, timeout=None, max_messages_to_get=1000000000, copy=True)\n--\n\n"
       "A list of what is there, at least one and at most so many; waits for the first.\n\n"
       "With copy=False a MessageBatch, whose arrays look into the queue until it is released. A message "
       "that "
       "cannot be loaded is reported by the next call, with its bytes as the exception's `payload`; the "
       "others "
       "are returned. A few thousand messages at a time are quickest: of more, the objects outgrow the "
       "processor's caches, and Python maps fresh memory for them each time."},
      {"get_many_nowait", method(&queue_get_many_nowait), kFast,
       "get_many_nowait($self, max_messages_to_get=1000000000, copy=True)\n--\n\nget_many without waiting."},
      {nullptr, nullptr, 0, nullptr},
  };
  static PyMemberDef members[] = {
      {"__weaklistoffset__", T_PYSSIZET, offsetof(QueueObject, weak_references), READONLY, nullptr},
      {nullptr, 0, 0, 0, nullptr},
  };
  static PyType_Slot slots[] = {
      {Py_tp_dealloc, slot(&queue_dealloc)},
      {Py_tp_traverse, slot(&queue_traverse)},
      {Py_tp_clear, slot(&queue_clear)},
      {Py_tp_methods, methods},
      {Py_tp_members, members},
      {Py_tp_new, slot(&PyType_GenericNew)},
      {Py_tp_doc,
       const_cast<char*>("What gristmill.Queue is made on: its methods that run for every message.")},
      {0, nullptr},
  };
  static PyType_Spec spec = {"gristmill._core.MessageQueue", sizeof(QueueObject), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};
  return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
}

}  // namespace gristmill::python
