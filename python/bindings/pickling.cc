#include "python/bindings/pickling.h"

#include <pybind11/pybind11.h>

#include "python/bindings/array_reducer.h"
#include "python/bindings/kept_error.h"
#include "python/bindings/memory_region.h"
#include "python/bindings/message_arrays.h"
#include "python/bindings/type_tables.h"

namespace gristmill::python {
namespace {

namespace py = pybind11;

// A Pickler that has pickled so much keeps too large a memo: clearing it would cost every later message.
constexpr std::size_t kReuseBelow = 64 * 1024;
constexpr int kProtocol = 5;

// Kept for ever: interpreters end while threads still hold queues.
struct Names {
  PyObject* pickler_class;       // _pickle.Pickler
  PyObject* loads;               // _pickle.loads
  PyObject* buffers_keyword;     // ("buffers",)
  PyObject* dispatch_tables[2];  // a DispatchTable for each of Tensors
  PyObject* dump;
  PyObject* clear_memo;
};
Names* names = nullptr;
PyTypeObject* sink_type = nullptr;
PyTypeObject* table_type = nullptr;

// ---- DispatchTable: type -> reducer. Ours first, then multiprocessing's, then copyreg's.

struct DispatchTable {
  PyObject_HEAD PyObject* own;  // gristmill.queue_reducers.REDUCERS; null: tensors by handle
  PyObject* extra;              // ForkingPickler._extra_reducers
  PyObject* copyreg;            // copyreg.dispatch_table
  PyObject* modules;            // sys.modules
  PyObject* torch;              // "torch"
  bool has_torch;
};

PyObject* table_subscript(PyObject* self, PyObject* type) {
  auto* table = reinterpret_cast<DispatchTable*>(self);
  // torch registers reducers that share memory by handle; a queue copies. Only once torch is there.
  if (table->own != nullptr && !table->has_torch &&
      PyDict_GetItemWithError(table->modules, table->torch) != nullptr) {
    PyObject* home = PyImport_ImportModule("gristmill.queue_reducers");
    PyObject* added = home != nullptr ? PyObject_CallMethod(home, "add_torch", nullptr) : nullptr;
    Py_XDECREF(home);
    if (added == nullptr) return nullptr;
    // False while torch is still being imported.
    table->has_torch = PyObject_IsTrue(added) == 1;
    Py_DECREF(added);
  }
  for (PyObject* dict : {table->own, table->extra, table->copyreg}) {
    if (dict == nullptr) continue;
    PyObject* found = PyDict_GetItemWithError(dict, type);
    if (found != nullptr) return Py_NewRef(found);
    if (PyErr_Occurred()) return nullptr;
  }
  if (is_array_type(reinterpret_cast<PyTypeObject*>(type))) return Py_XNewRef(array_reducer());
  PyErr_SetObject(PyExc_KeyError, type);
  return nullptr;
}

// ---- Sink: the file that a Pickler writes to, and where its buffers go.

struct Sink {
  PyObject_HEAD std::vector<PyObject*>* written;  // bytes-like objects, in order
  std::vector<PyObject*>* buffers;                // PickleBuffers
};

PyObject* sink_write(PyObject* self, PyObject* data) {
  reinterpret_cast<Sink*>(self)->written->push_back(Py_NewRef(data));
  Py_RETURN_NONE;
}

// Pickle's buffer_callback: true keeps the buffer in the pickle.
PyObject* sink_add_buffer(PyObject* self, PyObject* buffer) {
  Py_buffer view;
  if (PyObject_GetBuffer(buffer, &view, PyBUF_ANY_CONTIGUOUS) != 0) {
    PyErr_Clear();  // not contiguous: pickle says so itself
    Py_RETURN_TRUE;
  }
  const auto bytes = static_cast<std::size_t>(view.len);
  PyBuffer_Release(&view);
  if (bytes < kPartBytes) Py_RETURN_TRUE;
  reinterpret_cast<Sink*>(self)->buffers->push_back(Py_NewRef(buffer));
  Py_RETURN_FALSE;
}

void drop(std::vector<PyObject*>& objects) {
  std::vector<PyObject*> dropped;
  dropped.swap(objects);
  for (PyObject* object : dropped) Py_DECREF(object);
}

void sink_dealloc(PyObject* self) {
  auto* sink = reinterpret_cast<Sink*>(self);
  PyTypeObject* type = Py_TYPE(self);
  drop(*sink->written);
  drop(*sink->buffers);
  delete sink->written;
  delete sink->buffers;
  type->tp_free(self);
  Py_DECREF(type);
}

// ---- A pickler and its sink, used by one call at a time.

struct Pickler {
  PyObject* pickler = nullptr;
  PyObject* sink = nullptr;
};

bool make(Pickler& made, Tensors tensors) {
  auto* sink = reinterpret_cast<Sink*>(sink_type->tp_alloc(sink_type, 0));
  if (sink == nullptr) return false;
  sink->written = new std::vector<PyObject*>;
  sink->buffers = new std::vector<PyObject*>;
  auto held = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(sink));
  try {
    py::object pickler = py::handle(names->pickler_class)(
        held, kProtocol, py::arg("buffer_callback") = held.attr("add_buffer"));
    pickler.attr("dispatch_table") = py::handle(names->dispatch_tables[static_cast<int>(tensors)]);
    made = {pickler.release().ptr(), held.release().ptr()};
    return true;
  } catch (py::error_already_set& error) {
    error.restore();
    return false;
  }
}

// Guarded by the GIL. Pickling may run Python code that pickles in turn: each takes its own.
std::vector<Pickler>& idle(Tensors tensors) {
  static auto* picklers = new std::vector<Pickler>[2];
  return picklers[static_cast<int>(tensors)];
}

class PicklerLease {
 public:
  explicit PicklerLease(Tensors tensors) : tensors_(tensors) {
    if (!idle(tensors).empty()) {
      used_ = idle(tensors).back();
      idle(tensors).pop_back();
    } else {
      make(used_, tensors);
    }
  }
  PicklerLease(const PicklerLease&) = delete;
  PicklerLease& operator=(const PicklerLease&) = delete;
  ~PicklerLease() {
    if (used_.pickler == nullptr) return;
    if (reusable_) {
      drop(*sink().written);
      drop(*sink().buffers);
      idle(tensors_).push_back(used_);
    } else {
      Py_DECREF(used_.pickler);
      Py_DECREF(used_.sink);
    }
  }
  explicit operator bool() const { return used_.pickler != nullptr; }
  PyObject* pickler() const { return used_.pickler; }
  Sink& sink() const { return *reinterpret_cast<Sink*>(used_.sink); }
  void reuse() { reusable_ = true; }

 private:
  Tensors tensors_;
  Pickler used_;
  bool reusable_ = false;  // not after an error
};

// What pickle wrote, into the message. Returns false with an exception set.
bool add_written(Sink& sink, Outgoing& out) {
  for (PyObject* data : *sink.written) {
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) != 0) return false;
    const auto bytes = static_cast<std::size_t>(view.len);
    if (bytes < kPartBytes) {
      out.bytes().append(view.buf, bytes);
      PyBuffer_Release(&view);
    } else {
      out.add_part(view.buf, bytes, data);
      out.keep(view);
    }
  }
  return true;
}

// {form, count, length of the pickle, length of each buffer}, the pickle, each buffer aligned.
bool add_with_buffers(Sink& sink, Outgoing& out) {
  std::uint64_t length = 0;
  for (PyObject* data : *sink.written) {
    const Py_ssize_t bytes = PyObject_Length(data);
    if (bytes < 0) return false;
    length += static_cast<std::uint64_t>(bytes);
  }
  std::vector<Py_buffer> views;
  for (PyObject* buffer : *sink.buffers) {
    Py_buffer view;
    if (PyObject_GetBuffer(buffer, &view, PyBUF_ANY_CONTIGUOUS) != 0) return false;
    out.keep(view);
    views.push_back(view);
  }
  out.bytes().byte(kBuffersForm);
  out.bytes().value(static_cast<std::uint32_t>(views.size()));
  out.bytes().value(length);
  for (const auto& view : views) out.bytes().value(static_cast<std::uint64_t>(view.len));
  if (!add_written(sink, out)) return false;
  for (const auto& view : views) {
    out.pad_to(kPartAlignment);
    PyObject* strided = strided_array_of(view.obj);
    if (strided != nullptr) {
      out.add_strided(strided, static_cast<std::size_t>(view.len));
    } else {
      out.add_part(view.buf, static_cast<std::size_t>(view.len), view.obj);
    }
  }
  return true;
}

PyObject* load(const std::byte* data, std::size_t bytes, PyObject* buffers) {
  // The memory is private or ours alone; the view must not outlive this call.
  PyObject* view = PyMemoryView_FromMemory(const_cast<char*>(reinterpret_cast<const char*>(data)),
                                           static_cast<Py_ssize_t>(bytes), PyBUF_READ);
  if (view == nullptr) return nullptr;
  PyObject* arguments[] = {view, buffers};
  PyObject* object =
      PyObject_Vectorcall(names->loads, arguments, 1, buffers ? names->buffers_keyword : nullptr);
  Py_DECREF(view);
  return object;
}

template <class T>
T read_at(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

PyObject* damaged() {
  PyErr_SetString(PyExc_ValueError, "the message is damaged, or of another serializer");
  return nullptr;
}

PyObject* load_with_buffers(std::span<const std::byte> message, PyObject* owner) {
  constexpr std::size_t kHead = 13;
  if (message.size() < kHead) return damaged();
  const auto count = read_at<std::uint32_t>(message.data() + 1);
  const auto length = read_at<std::uint64_t>(message.data() + 5);
  const std::size_t lengths_bytes = std::size_t{count} * 8;
  if (message.size() - kHead < lengths_bytes || message.size() - kHead - lengths_bytes < length)
    return damaged();
  const std::byte* lengths = message.data() + kHead;
  const std::byte* pickle = lengths + lengths_bytes;
  std::size_t at = kHead + lengths_bytes + length;

  auto buffers = py::reinterpret_steal<py::object>(PyList_New(0));
  if (!buffers) return nullptr;
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto bytes = read_at<std::uint64_t>(lengths + std::size_t{i} * 8);
    at = (at + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
    if (at > message.size() || message.size() - at < bytes) return damaged();
    auto* data = const_cast<std::byte*>(message.data() + at);
    at += bytes;
    PyObject* region = nullptr;
    if (owner != nullptr) {
      region = new_region_of(data, bytes, owner);
    } else {
      std::byte* copy = nullptr;
      region = new_region(bytes, &copy);
      if (region != nullptr) copy_message(copy, data, bytes);
    }
    const auto held = py::reinterpret_steal<py::object>(region);
    if (!held || PyList_Append(buffers.ptr(), region) != 0) return nullptr;
  }
  return load(pickle, length, buffers.ptr());
}

bool make_types() {
  static PyType_Slot table_slots[] = {{Py_mp_subscript, slot(&table_subscript)}, {0, nullptr}};
  static PyType_Spec table_spec = {"gristmill._core.DispatchTable", sizeof(DispatchTable), 0,
                                   Py_TPFLAGS_DEFAULT, table_slots};
  table_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&table_spec));
  static PyMethodDef sink_methods[] = {{"write", &sink_write, METH_O, nullptr},
                                       {"add_buffer", &sink_add_buffer, METH_O, nullptr},
                                       {nullptr, nullptr, 0, nullptr}};
  static PyType_Slot sink_slots[] = {
      {Py_tp_dealloc, slot(&sink_dealloc)}, {Py_tp_methods, sink_methods}, {0, nullptr}};
  static PyType_Spec sink_spec = {"gristmill._core.PickleSink", sizeof(Sink), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, sink_slots};
  sink_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&sink_spec));
  return table_type != nullptr && sink_type != nullptr;
}

DispatchTable* new_table(const char* own) {
  auto* table = reinterpret_cast<DispatchTable*>(table_type->tp_alloc(table_type, 0));
  if (table == nullptr) throw py::error_already_set();
  const auto kept = [](const char* module, const char* name) {
    return py::module_::import(module).attr(name).cast<py::object>();
  };
  if (own != nullptr) table->own = kept("gristmill.queue_reducers", own).release().ptr();
  table->extra = kept("multiprocessing.reduction", "ForkingPickler")
                     .attr("_extra_reducers")
                     .cast<py::object>()
                     .release()
                     .ptr();
  table->copyreg = kept("copyreg", "dispatch_table").release().ptr();
  table->modules = kept("sys", "modules").release().ptr();
  table->torch = PyUnicode_InternFromString("torch");
  return table;
}

// At the first use: multiprocessing takes milliseconds to import.
bool prepare() {
  if (names != nullptr) return true;
  try {
    auto pickle = py::module_::import("_pickle");
    auto made = std::make_unique<Names>();
    made->pickler_class = pickle.attr("Pickler").cast<py::object>().release().ptr();
    made->loads = pickle.attr("loads").cast<py::object>().release().ptr();
    made->buffers_keyword = py::make_tuple("buffers").release().ptr();
    made->dispatch_tables[static_cast<int>(Tensors::kCopied)] =
        reinterpret_cast<PyObject*>(new_table("REDUCERS"));
    made->dispatch_tables[static_cast<int>(Tensors::kByHandle)] =
        reinterpret_cast<PyObject*>(new_table(nullptr));
    made->dump = PyUnicode_InternFromString("dump");
    made->clear_memo = PyUnicode_InternFromString("clear_memo");
    names = made.release();
    return true;
  } catch (py::error_already_set& error) {
    error.restore();
    return false;
  }
}

}  // namespace

bool encode_pickle(PyObject* object, Tensors tensors, Outgoing& out) {
  if (!prepare()) return false;
  PicklerLease lease(tensors);
  if (!lease) return false;
  PyObject* done = PyObject_CallMethodOneArg(lease.pickler(), names->dump, object);
  if (done == nullptr) return false;
  Py_DECREF(done);
  Sink& sink = lease.sink();
  if (!(sink.buffers->empty() ? add_written(sink, out) : add_with_buffers(sink, out))) {
    const KeptError failed;
    out.restart_message();
    return false;
  }
  if (out.message_bytes() < kReuseBelow || !sink.buffers->empty()) {
    PyObject* cleared = PyObject_CallMethodNoArgs(lease.pickler(), names->clear_memo);
    if (cleared == nullptr) {
      PyErr_Clear();
    } else {
      Py_DECREF(cleared);
      lease.reuse();
    }
  }
  return true;
}

PyObject* decode_pickle(std::span<const std::byte> message, PyObject* owner) {
  if (!prepare()) return nullptr;
  if (static_cast<std::uint8_t>(message[0]) == kBuffersForm) return load_with_buffers(message, owner);
  return load(message.data(), message.size(), nullptr);
}

bool has_reducer(PyObject* type) {
  if (!prepare()) return true;
  const auto* table =
      reinterpret_cast<const DispatchTable*>(names->dispatch_tables[static_cast<int>(Tensors::kCopied)]);
  for (PyObject* dict : {table->own, table->extra, table->copyreg}) {
    if (PyDict_Contains(dict, type) != 0) return true;
  }
  return false;
}

bool init_pickling() { return make_types() && init_array_reducer(); }

}  // namespace gristmill::python
