#include "python/bindings/queue_encode.h"

#include <utility>
#include <vector>

#include "python/bindings/kept_error.h"
#include "python/bindings/message_codec.h"
#include "python/bindings/pickling.h"

namespace gristmill::python {
namespace {

// Guarded by the GIL.
std::vector<std::unique_ptr<Outgoing>>& idle() {
  static auto* all = new std::vector<std::unique_ptr<Outgoing>>;
  return *all;
}

// The bytes of a bytes-like object. False with TypeError set.
bool add_bytes_like(PyObject* object, const char* what, Outgoing& out) {
  if (PyBytes_CheckExact(object)) {
    const auto bytes = static_cast<std::size_t>(PyBytes_GET_SIZE(object));
    if (bytes < kPartBytes) {
      out.bytes().append(PyBytes_AS_STRING(object), bytes);
    } else {
      out.add_part(PyBytes_AS_STRING(object), bytes, object);
    }
    return true;
  }
  Py_buffer view;
  if (PyObject_GetBuffer(object, &view, PyBUF_ANY_CONTIGUOUS) != 0) {
    PyErr_Format(PyExc_TypeError, "%s is a %s; expected bytes, or another contiguous bytes-like object", what,
                 Py_TYPE(object)->tp_name);
    return false;
  }
  out.keep(view);
  if (static_cast<std::size_t>(view.len) < kPartBytes) {
    out.bytes().append(view.buf, static_cast<std::size_t>(view.len));
  } else {
    out.add_part(view.buf, static_cast<std::size_t>(view.len), object);
  }
  return true;
}

}  // namespace

OutgoingLease::OutgoingLease() {
  if (idle().empty()) {
    used_ = std::make_unique<Outgoing>();
  } else {
    used_ = std::move(idle().back());
    idle().pop_back();
  }
}

OutgoingLease::~OutgoingLease() {
  used_->clear();
  idle().push_back(std::move(used_));
}

bool encode(QueueObject& self, PyObject* object, Outgoing& out) {
  bool done = false;
  switch (self.serializer) {
    case Serializer::kPickle: {
      const Encoding encoding = encode_plain(object, out);
      done = encoding == Encoding::kDone ||
             (encoding == Encoding::kNotPlain &&
              encode_pickle(object, self.tensors_by_handle ? Tensors::kByHandle : Tensors::kCopied, out));
      break;
    }
    case Serializer::kRaw:
      done = add_bytes_like(object, "the message", out);
      break;
    case Serializer::kCustom: {
      PyObject* made = PyObject_CallOneArg(self.dumps, object);
      if (made == nullptr) break;
      done = add_bytes_like(made, "what dumps returned", out);
      if (done) out.keep(made);
      Py_DECREF(made);
      break;
    }
  }
  if (done) return true;
  const KeptError failed;
  out.restart_message();
  return false;
}

}  // namespace gristmill::python
