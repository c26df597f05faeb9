#include <algorithm>
#include <vector>

#include "python/bindings/memory_region.h"
#include "python/bindings/message_arrays.h"
#include "python/bindings/message_codec.h"
#include "python/bindings/plain_class.h"
#include "python/bindings/plain_form.h"

namespace gristmill::python {
namespace {

namespace py = pybind11;

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
      case kInstance:
        return instance(depth);
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
    copy_message(reinterpret_cast<std::byte*>(PyBytes_AS_STRING(made)), at_, length);
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

  // Into `made`, a tuple or list of `count`, which is dropped unless all of them decode.
  template <class Set>
  PyObject* filled(PyObject* made, std::uint32_t count, int depth, Set&& set) {
    for (std::uint32_t i = 0; made != nullptr && i < count; ++i) {
      PyObject* item = decode(depth + 1);
      if (item == nullptr) {
        Py_CLEAR(made);
      } else {
        set(made, i, item);
      }
    }
    return made;
  }

  PyObject* tuple(std::uint32_t count, int depth) {
    if (!plausible(count, depth)) return damaged();
    return filled(PyTuple_New(count), count, depth,
                  [](PyObject* made, std::uint32_t i, PyObject* item) { PyTuple_SET_ITEM(made, i, item); });
  }

  PyObject* list(int depth) {
    std::uint32_t count = 0;
    if (!read(count) || !plausible(count, depth)) return damaged();
    return filled(PyList_New(count), count, depth,
                  [](PyObject* made, std::uint32_t i, PyObject* item) { PyList_SET_ITEM(made, i, item); });
  }

  PyObject* dict(int depth) {
    PyObject* made = PyDict_New();
    if (made == nullptr || items(made, depth)) return made;
    Py_DECREF(made);
    return damaged();
  }

  bool items(PyObject* dict, int depth, bool names = false) {
    std::uint32_t count = 0;
    if (!read(count) || !plausible(count, depth)) return false;
    for (std::uint32_t i = 0; i < count; ++i) {
      PyObject* key = decode(depth + 1);
      PyObject* value = key != nullptr ? decode(depth + 1) : nullptr;
      if (value != nullptr && names && PyUnicode_CheckExact(key)) PyUnicode_InternInPlace(&key);
      const bool set = value != nullptr && PyDict_SetItem(dict, key, value) == 0;
      Py_XDECREF(key);
      Py_XDECREF(value);
      if (set) continue;
      // A key that no dict takes never was in one.
      if (PyErr_ExceptionMatches(PyExc_TypeError)) PyErr_Clear();
      return false;
    }
    return true;
  }

  // As pickle does it: __init__ is not called.
  PyObject* instance(int depth) {
    std::uint8_t length = 0;
    if (!read(length) || left() < length) return damaged();
    PyTypeObject* type = find_plain_class({text(length), length});
    if (type == nullptr) return nullptr;
    static PyObject* const nothing = PyTuple_New(0);
    PyObject* made = PyBaseObject_Type.tp_new(type, nothing, nullptr);
    PyObject* attributes = made != nullptr ? PyObject_GenericGetDict(made, nullptr) : nullptr;
    const bool good = attributes != nullptr && items(attributes, depth, true);
    Py_XDECREF(attributes);
    if (good) return made;
    Py_XDECREF(made);
    return damaged();
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
    return make_array(std::move(dtype), dimensions, shape, data, bytes, fortran != 0, owner_);
  }

  const std::byte* begin_;
  const std::byte* at_;
  const std::byte* end_;
  PyObject* owner_;
};

}  // namespace

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

}  // namespace gristmill::python
