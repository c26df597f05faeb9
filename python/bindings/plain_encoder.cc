#include "python/bindings/message_arrays.h"
#include "python/bindings/message_codec.h"
#include "python/bindings/plain_class.h"
#include "python/bindings/plain_form.h"

namespace gristmill::python {
namespace {

namespace py = pybind11;

// Longer ones are pickle's: it keeps no more than one copy of what is shared.
constexpr std::size_t kMaxBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxSeen = 32;

class Encoder {
 public:
  explicit Encoder(Outgoing& out) : out_(out), bytes_(out.bytes()) {}

  bool encode(PyObject* object, int depth, bool shared) {
    PyTypeObject* type = Py_TYPE(object);
    if (type == &PyLong_Type) return encode_int(object);
    if (type == &PyUnicode_Type) return encode_text(object);
    if (type == &PyFloat_Type) {
      std::byte* at = bytes_.extend(9);
      *at = std::byte{kFloat};
      const double value = PyFloat_AS_DOUBLE(object);
      std::memcpy(at + 1, &value, 8);
      return true;
    }
    if (object == Py_None) return bytes_.byte(kNone), true;
    if (object == Py_True) return bytes_.byte(kTrue), true;
    if (object == Py_False) return bytes_.byte(kFalse), true;
    if (type == &PyBytes_Type) return encode_bytes(object);
    if (depth >= kMaxDepth || bytes_.size() - begin_ > kMaxBytes) return false;
    if (type == &PyTuple_Type) return encode_tuple(object, depth, shared);
    if (type == &PyList_Type) return encode_list(object, depth, shared);
    if (type == &PyDict_Type) return encode_dict(object, depth, shared);
    if (is_array_type(type)) return encode_array(object, depth, shared);
    return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 && encode_instance(object, depth, shared);
  }

 private:
  // Whether the mutable `object` occurs for the first time. One with a single reference can only
  // occur once, unless what holds it does so several times.
  bool first_time(PyObject* object, int depth, bool shared) {
    if (depth > 0 && !shared && Py_REFCNT(object) == 1) return true;
    for (std::size_t i = 0; i < seen_count_; ++i) {
      if (seen_[i] == object) return false;
    }
    if (seen_count_ == kMaxSeen) return false;
    seen_[seen_count_++] = object;
    return true;
  }

  bool encode_int(PyObject* object) {
    int overflow = 0;
    const long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (overflow != 0) return false;
    if (value == static_cast<std::int8_t>(value)) {
      std::byte* at = bytes_.extend(2);
      at[0] = std::byte{kInt8};
      at[1] = static_cast<std::byte>(value);
    } else if (value == static_cast<std::int32_t>(value)) {
      const auto narrow = static_cast<std::int32_t>(value);
      std::byte* at = bytes_.extend(5);
      at[0] = std::byte{kInt32};
      std::memcpy(at + 1, &narrow, 4);
    } else {
      std::byte* at = bytes_.extend(9);
      at[0] = std::byte{kInt64};
      std::memcpy(at + 1, &value, 8);
    }
    return true;
  }

  bool encode_text(PyObject* object) {
    const auto length = static_cast<std::size_t>(PyUnicode_GET_LENGTH(object));
    const auto kind = static_cast<std::size_t>(PyUnicode_KIND(object));
    if (kind == 1 && length < 256) {
      std::byte* at = bytes_.extend(2 + length);
      at[0] = std::byte{kShortText};
      at[1] = static_cast<std::byte>(length);
      std::memcpy(at + 2, PyUnicode_DATA(object), length);
      return true;
    }
    bytes_.byte(kText);
    bytes_.byte(static_cast<std::uint8_t>(kind));
    bytes_.value<std::uint64_t>(length);
    return add_data(PyUnicode_DATA(object), kind * length, object);
  }

  bool encode_bytes(PyObject* object) {
    const auto length = static_cast<std::size_t>(PyBytes_GET_SIZE(object));
    if (length < 256) {
      std::byte* at = bytes_.extend(2 + length);
      at[0] = std::byte{kShortBytes};
      at[1] = static_cast<std::byte>(length);
      std::memcpy(at + 2, PyBytes_AS_STRING(object), length);
      return true;
    }
    bytes_.byte(kBytes);
    bytes_.value<std::uint64_t>(length);
    return add_data(PyBytes_AS_STRING(object), length, object);
  }

  bool encode_tuple(PyObject* object, int depth, bool shared) {
    const Py_ssize_t count = PyTuple_GET_SIZE(object);
    if (count < 256) {
      std::byte* at = bytes_.extend(2);
      at[0] = std::byte{kSmallTuple};
      at[1] = static_cast<std::byte>(count);
    } else {
      bytes_.byte(kTuple);
      if (!put_count(count)) return false;
    }
    // The outermost one can only occur again inside itself, through something mutable.
    const bool inner = shared || (depth > 0 && Py_REFCNT(object) > 1);
    for (Py_ssize_t i = 0; i < count; ++i) {
      if (!encode(PyTuple_GET_ITEM(object, i), depth + 1, inner)) return false;
    }
    return true;
  }

  bool encode_list(PyObject* object, int depth, bool shared) {
    if (!first_time(object, depth, shared)) return false;
    const Py_ssize_t count = PyList_GET_SIZE(object);
    bytes_.byte(kList);
    if (!put_count(count)) return false;
    for (Py_ssize_t i = 0; i < count; ++i) {
      if (!encode(PyList_GET_ITEM(object, i), depth + 1, shared)) return false;
    }
    return true;
  }

  bool encode_dict(PyObject* object, int depth, bool shared) {
    if (!first_time(object, depth, shared)) return false;
    bytes_.byte(kDict);
    return encode_items(object, depth, shared);
  }

  bool encode_items(PyObject* dict, int depth, bool shared) {
    if (!put_count(PyDict_GET_SIZE(dict))) return false;
    PyObject* key = nullptr;
    PyObject* value = nullptr;
    Py_ssize_t position = 0;
    while (PyDict_Next(dict, &position, &key, &value)) {
      if (!encode(key, depth + 1, shared) || !encode(value, depth + 1, shared)) return false;
    }
    return true;
  }

  bool encode_instance(PyObject* object, int depth, bool shared) {
    const PlainClass* found = plain_class(Py_TYPE(object));
    if (found == nullptr || !first_time(object, depth, shared)) return false;
    bytes_.byte(kInstance);
    bytes_.byte(static_cast<std::uint8_t>(found->name.size()));
    bytes_.append(found->name.data(), found->name.size());
    PyObject* attributes = PyObject_GenericGetDict(object, nullptr);
    if (attributes == nullptr) PyErr_Clear();
    // Who else holds the dict may be in the message too.
    const bool good = attributes != nullptr && PyDict_CheckExact(attributes) && Py_REFCNT(attributes) == 2 &&
                      encode_items(attributes, depth, shared);
    Py_XDECREF(attributes);
    return good;
  }

  bool encode_array(PyObject* object, int depth, bool shared) {
    if (!first_time(object, depth, shared)) return false;
    const auto* array = reinterpret_cast<const py::detail::PyArray_Proxy*>(object);
    const auto* descr = py::detail::array_descriptor_proxy(array->descr);
    // '=' and '|': this machine's byte order. Read-only arrays stay so through pickle.
    if (!is_number(descr->type_num) || descr->byteorder == '>' || descr->byteorder == '<') return false;
    if (array->nd > kMaxDimensions || (array->flags & kWriteable) == 0) return false;
    auto bytes = static_cast<std::size_t>(py::reinterpret_borrow<py::dtype>(array->descr).itemsize());
    for (int d = 0; d < array->nd; ++d) bytes *= static_cast<std::size_t>(array->dimensions[d]);
    const bool c_order = (array->flags & kCContiguous) != 0;
    const bool fortran = !c_order && (array->flags & kFContiguous) != 0;
    bytes_.byte(kArray);
    bytes_.byte(static_cast<std::uint8_t>(descr->type_num));
    bytes_.byte(fortran ? 1 : 0);
    bytes_.byte(static_cast<std::uint8_t>(array->nd));
    for (int d = 0; d < array->nd; ++d) bytes_.value<std::int64_t>(array->dimensions[d]);
    out_.pad_to(bytes >= kPartBytes ? kPartAlignment : 16);
    if (c_order || fortran) {
      if (bytes < kPartBytes) {
        bytes_.append(array->data, bytes);
      } else {
        out_.add_part(array->data, bytes, object);
      }
    } else if (bytes >= kPartBytes) {
      out_.add_strided(object, bytes);
    } else if (bytes > 0 && !copy_strided(object, bytes_.extend(bytes))) {
      throw py::error_already_set();
    }
    return true;
  }

  bool put_count(Py_ssize_t count) {
    if (count > static_cast<Py_ssize_t>(kMaxBytes)) return false;
    bytes_.value(static_cast<std::uint32_t>(count));
    return true;
  }

  // Immutable data. Pickle sends long ones that occur again only once.
  bool add_data(const void* data, std::size_t bytes, PyObject* owner) {
    if (bytes < kPartBytes) {
      bytes_.append(data, bytes);
      return true;
    }
    if (!first_time(owner, 1, true)) return false;
    out_.add_part(data, bytes, owner);
    return true;
  }

  Outgoing& out_;
  ByteBuffer& bytes_;
  std::size_t begin_ = bytes_.size();
  PyObject* seen_[kMaxSeen];
  std::size_t seen_count_ = 0;
};

}  // namespace

Encoding encode_plain(PyObject* object, Outgoing& out) {
  try {
    out.bytes().byte(kPlainForm);
    if (Encoder(out).encode(object, 0, false)) return Encoding::kDone;
  } catch (py::error_already_set& error) {
    error.restore();
    return Encoding::kError;
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
    return Encoding::kError;
  }
  out.restart_message();
  return Encoding::kNotPlain;
}

}  // namespace gristmill::python
