#include "python/bindings/message_codec.h"

#include <pybind11/numpy.h>

#include <algorithm>

#include "python/bindings/memory_region.h"

namespace gristmill::python {
namespace {

namespace py = pybind11;
using NumpyApi = py::detail::npy_api;

// Stored in messages; both ends are the same version of this library (the segment's layout hash).
enum Tag : std::uint8_t {
  kNone,
  kTrue,
  kFalse,
  kInt8,
  kInt32,
  kInt64,
  kFloat,
  kShortBytes,  // length: one byte
  kBytes,       // length: eight; the data may be a part
  kShortText,   // length: one byte; Latin-1
  kText,        // bytes a character, length
  kSmallTuple,  // count: one byte
  kTuple,       // count: four
  kList,
  kDict,
  kArray,  // type number, Fortran order, dimensions, shape; padding, data
};

// Deeper ones, and longer ones, are pickle's: it keeps no more than one copy of what is shared.
constexpr int kMaxDepth = 24;
constexpr std::size_t kMaxBytes = std::size_t{1} << 20;
constexpr int kMaxDimensions = 64;
constexpr std::size_t kMaxSeen = 32;
// NumPy's flags, part of its ABI.
constexpr int kCContiguous = 1;
constexpr int kFContiguous = 2;
constexpr int kWriteable = 0x400;
constexpr int kHalf = 23;
constexpr int kLastNumber = 16;  // complex long double

bool is_number(int type) { return (type >= 0 && type <= kLastNumber) || type == kHalf; }

// Null until a NumPy array has been seen: this module does not import NumPy by itself.
const NumpyApi* numpy() {
  static const NumpyApi* api = nullptr;
  if (api == nullptr) api = &NumpyApi::get();
  return api;
}

bool is_array(PyObject* object) {
  static PyTypeObject* array_type = nullptr;
  if (array_type != nullptr) return Py_TYPE(object) == array_type;
  if (std::strcmp(Py_TYPE(object)->tp_name, "numpy.ndarray") != 0) return false;
  array_type = numpy()->PyArray_Type_;
  return Py_TYPE(object) == array_type;
}

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
    if (is_array(object)) return encode_array(object, depth, shared);
    return false;
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
      if (!put_count(kTuple, count)) return false;
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
    if (!put_count(kList, count)) return false;
    for (Py_ssize_t i = 0; i < count; ++i) {
      if (!encode(PyList_GET_ITEM(object, i), depth + 1, shared)) return false;
    }
    return true;
  }

  bool encode_dict(PyObject* object, int depth, bool shared) {
    if (!first_time(object, depth, shared)) return false;
    if (!put_count(kDict, PyDict_GET_SIZE(object))) return false;
    PyObject* key = nullptr;
    PyObject* value = nullptr;
    Py_ssize_t position = 0;
    while (PyDict_Next(object, &position, &key, &value)) {
      if (!encode(key, depth + 1, shared) || !encode(value, depth + 1, shared)) return false;
    }
    return true;
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

  bool put_count(Tag tag, Py_ssize_t count) {
    if (count > static_cast<Py_ssize_t>(kMaxBytes)) return false;
    bytes_.byte(tag);
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

class Decoder {
 public:
  Decoder(std::span<const std::byte> message, PyObject* owner)
      : begin_(message.data()), at_(begin_ + 1), end_(begin_ + message.size()), owner_(owner) {}

  bool at_end() const { return at_ == end_; }

  PyObject* decode(int depth) {
    if (at_ == end_) return damaged();
    switch (static_cast<std::uint8_t>(*at_++)) {
      case kNone:
        Py_RETURN_NONE;
      case kTrue:
        Py_RETURN_TRUE;
      case kFalse:
        Py_RETURN_FALSE;
      case kInt8:
        return number<std::int8_t>();
      case kInt32:
        return number<std::int32_t>();
      case kInt64:
        return number<std::int64_t>();
      case kFloat: {
        double value = 0;
        return read(value) ? PyFloat_FromDouble(value) : damaged();
      }
      case kShortBytes: {
        std::uint8_t length = 0;
        if (!read(length) || left() < length) return damaged();
        return PyBytes_FromStringAndSize(text(length), length);
      }
      case kBytes: {
        std::uint64_t length = 0;
        if (!read(length) || left() < length) return damaged();
        return large_bytes(length);
      }
      case kShortText: {
        std::uint8_t length = 0;
        if (!read(length) || left() < length) return damaged();
        return PyUnicode_FromKindAndData(PyUnicode_1BYTE_KIND, text(length), length);
      }
      case kText:
        return long_text();
      case kSmallTuple: {
        std::uint8_t count = 0;
        return read(count) ? tuple(count, depth) : damaged();
      }
      case kTuple: {
        std::uint32_t count = 0;
        return read(count) ? tuple(count, depth) : damaged();
      }
      case kList:
        return list(depth);
      case kDict:
        return dict(depth);
      case kArray:
        return array();
      default:
        return damaged();
    }
  }

 private:
  static PyObject* damaged() {
    if (!PyErr_Occurred())
      PyErr_SetString(PyExc_ValueError, "the message is damaged, or of another serializer");
    return nullptr;
  }

  std::size_t left() const { return static_cast<std::size_t>(end_ - at_); }

  template <class T>
  bool read(T& value) {
    if (left() < sizeof value) return false;
    std::memcpy(&value, at_, sizeof value);
    at_ += sizeof value;
    return true;
  }
  template <class T>
  PyObject* number() {
    T value = 0;
    return read(value) ? PyLong_FromLongLong(value) : damaged();
  }
  const char* text(std::size_t bytes) {
    const auto* found = reinterpret_cast<const char*>(at_);
    at_ += bytes;
    return found;
  }

  PyObject* large_bytes(std::uint64_t length) {
    PyObject* made = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(length));
    if (made == nullptr) return nullptr;
    copy_bytes(reinterpret_cast<std::byte*>(PyBytes_AS_STRING(made)), at_, length);
    at_ += length;
    return made;
  }

  PyObject* long_text() {
    std::uint8_t kind = 0;
    std::uint64_t length = 0;
    if (!read(kind) || !read(length) || (kind != 1 && kind != 2 && kind != 4) || left() / kind < length) {
      return damaged();
    }
    const std::size_t bytes = static_cast<std::size_t>(kind) * length;
    // The message may lie at any address; wide characters must not.
    std::vector<std::uint32_t> aligned;
    const void* data = at_;
    if (kind > 1) {
      aligned.resize(bytes / 4 + 1);
      std::memcpy(aligned.data(), at_, bytes);
      data = aligned.data();
      if (kind == 4 && std::any_of(aligned.begin(), aligned.begin() + static_cast<std::ptrdiff_t>(length),
                                   [](std::uint32_t c) { return c > 0x10FFFF; })) {
        return damaged();
      }
    }
    at_ += bytes;
    return PyUnicode_FromKindAndData(kind, data, static_cast<Py_ssize_t>(length));
  }

  // Every element takes a byte at least: a count that is damaged allocates nothing.
  bool plausible(std::uint32_t count, int depth) const { return count <= left() && depth < kMaxDepth; }

  PyObject* tuple(std::uint32_t count, int depth) {
    if (!plausible(count, depth)) return damaged();
    PyObject* made = PyTuple_New(count);
    if (made == nullptr) return nullptr;
    for (std::uint32_t i = 0; i < count; ++i) {
      PyObject* item = decode(depth + 1);
      if (item == nullptr) {
        Py_DECREF(made);
        return nullptr;
      }
      PyTuple_SET_ITEM(made, i, item);
    }
    return made;
  }

  PyObject* list(int depth) {
    std::uint32_t count = 0;
    if (!read(count) || !plausible(count, depth)) return damaged();
    PyObject* made = PyList_New(count);
    if (made == nullptr) return nullptr;
    for (std::uint32_t i = 0; i < count; ++i) {
      PyObject* item = decode(depth + 1);
      if (item == nullptr) {
        Py_DECREF(made);
        return nullptr;
      }
      PyList_SET_ITEM(made, i, item);
    }
    return made;
  }

  PyObject* dict(int depth) {
    std::uint32_t count = 0;
    if (!read(count) || !plausible(count, depth)) return damaged();
    PyObject* made = PyDict_New();
    if (made == nullptr) return nullptr;
    for (std::uint32_t i = 0; i < count; ++i) {
      PyObject* key = decode(depth + 1);
      PyObject* value = key != nullptr ? decode(depth + 1) : nullptr;
      const bool set = value != nullptr && PyDict_SetItem(made, key, value) == 0;
      Py_XDECREF(key);
      Py_XDECREF(value);
      if (!set) {
        Py_DECREF(made);
        // A key that no dict takes never was in one.
        if (PyErr_ExceptionMatches(PyExc_TypeError)) PyErr_Clear();
        return damaged();
      }
    }
    return made;
  }

  PyObject* array() {
    std::uint8_t type = 0;
    std::uint8_t fortran = 0;
    std::uint8_t dimensions = 0;
    if (!read(type) || !read(fortran) || !read(dimensions) || !is_number(type) ||
        dimensions > kMaxDimensions) {
      return damaged();
    }
    auto dtype = py::reinterpret_steal<py::dtype>(numpy()->PyArray_DescrFromType_(type));
    Py_ssize_t shape[kMaxDimensions];
    auto bytes = static_cast<std::size_t>(dtype.itemsize());
    bool empty = false;
    for (int d = 0; d < dimensions; ++d) {
      std::int64_t length = 0;
      if (!read(length) || length < 0) return damaged();
      shape[d] = static_cast<Py_ssize_t>(length);
      empty = empty || length == 0;
      if (__builtin_mul_overflow(bytes, static_cast<std::size_t>(length), &bytes) && !empty) return damaged();
    }
    if (empty) bytes = 0;
    const auto offset = static_cast<std::size_t>(at_ - begin_);
    const std::size_t alignment = bytes >= kPartBytes ? kPartAlignment : 16;
    const std::size_t padding = (alignment - offset % alignment) % alignment;
    if (left() < padding || left() - padding < bytes) return damaged();
    at_ += padding;
    const std::byte* data = at_;
    at_ += bytes;
    return new_array(std::move(dtype), dimensions, shape, data, bytes, fortran != 0);
  }

  PyObject* new_array(py::dtype dtype, int dimensions, Py_ssize_t* shape, const std::byte* data,
                      std::size_t bytes, bool fortran) {
    // Small ones are copied even for a batch in place: the copy is cheaper than what keeps it.
    constexpr std::size_t kOwnRegion = 32 * 1024;
    PyObject* base = nullptr;
    std::byte* at = nullptr;
    if (bytes >= kPartBytes && owner_ != nullptr) {
      base = Py_NewRef(owner_);
      at = const_cast<std::byte*>(data);  // the queue's memory is this process's alone until released
    } else if (bytes >= kOwnRegion) {
      base = new_region(bytes, &at);
      if (base == nullptr) return nullptr;
      copy_bytes(at, data, bytes);
    }
    const int flags = kWriteable | (fortran ? kFContiguous : kCContiguous);
    // Steals the dtype. Without data, any flag means Fortran order.
    PyObject* made =
        numpy()->PyArray_NewFromDescr_(numpy()->PyArray_Type_, dtype.release().ptr(), dimensions, shape,
                                       nullptr, at, at != nullptr ? flags : (fortran ? 1 : 0), nullptr);
    if (made == nullptr) {
      Py_XDECREF(base);
      return nullptr;
    }
    if (base != nullptr) {
      if (numpy()->PyArray_SetBaseObject_(made, base) != 0) {
        Py_DECREF(made);
        return nullptr;
      }
    } else if (bytes > 0) {
      std::memcpy(reinterpret_cast<py::detail::PyArray_Proxy*>(made)->data, data, bytes);
    }
    return made;
  }

  const std::byte* begin_;
  const std::byte* at_;
  const std::byte* end_;
  PyObject* owner_;
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

PyObject* decode_plain(std::span<const std::byte> message, PyObject* owner) {
  try {
    Decoder decoder(message, owner);
    PyObject* object = decoder.decode(0);
    if (object != nullptr && !decoder.at_end()) {
      Py_DECREF(object);
      PyErr_SetString(PyExc_ValueError,
                      "the message has bytes left over: it is damaged, or of another serializer");
      return nullptr;
    }
    return object;
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  }
  return nullptr;
}

bool copy_strided(PyObject* array, std::byte* to) {
  const auto* source = reinterpret_cast<const py::detail::PyArray_Proxy*>(array);
  PyObject* target =
      numpy()->PyArray_NewFromDescr_(numpy()->PyArray_Type_, Py_NewRef(source->descr), source->nd,
                                     source->dimensions, nullptr, to, kWriteable | kCContiguous, nullptr);
  if (target == nullptr) return false;
  const bool done = numpy()->PyArray_CopyInto_(target, array) == 0;
  Py_DECREF(target);
  return done;
}

}  // namespace gristmill::python
