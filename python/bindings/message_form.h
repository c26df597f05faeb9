#pragma once

// A Python object on its way into a queue: bytes of our own, and parts that lie elsewhere and are
// copied into the queue directly. Everything here needs the GIL.

#include <Python.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

namespace gristmill::python {

// The first byte of a message of a pickling queue. A plain pickle begins with its own PROTO opcode.
inline constexpr std::uint8_t kPlainForm = 0xA1;    // plain_form.h
inline constexpr std::uint8_t kBuffersForm = 0xA2;  // a pickle, and its out-of-band buffers behind it
inline constexpr std::uint8_t kPickleForm = 0x80;

// Views of arrays are aligned to this within a message that is aligned so itself.
inline constexpr std::size_t kPartAlignment = 64;
// What is shorter is copied once more, and costs less so.
inline constexpr std::size_t kPartBytes = 1024;

// Appends without initialising first.
class ByteBuffer {
 public:
  // Memory kept for the next message.
  static constexpr std::size_t kKeepBytes = std::size_t{1} << 20;

  std::size_t size() const { return size_; }
  const std::byte* data() const { return data_.get(); }
  void truncate(std::size_t size) { size_ = size; }
  std::byte* extend(std::size_t bytes) {
    if (capacity_ - size_ < bytes) grow(bytes);
    std::byte* at = data_.get() + size_;
    size_ += bytes;
    return at;
  }
  void byte(std::uint8_t value) { *extend(1) = static_cast<std::byte>(value); }
  template <class T>
  void value(T v) {
    std::memcpy(extend(sizeof v), &v, sizeof v);
  }
  void append(const void* data, std::size_t bytes) {
    if (bytes > 0) std::memcpy(extend(bytes), data, bytes);
  }
  void clear() {
    size_ = 0;
    if (capacity_ > kKeepBytes) {
      data_.reset();
      capacity_ = 0;
    }
  }

 private:
  void grow(std::size_t bytes) {
    const std::size_t capacity = std::max(size_ + bytes, std::max<std::size_t>(4096, 2 * capacity_));
    std::unique_ptr<std::byte[]> data(new std::byte[capacity]);
    if (size_ > 0) std::memcpy(data.get(), data_.get(), size_);
    data_ = std::move(data);
    capacity_ = capacity;
  }

  std::unique_ptr<std::byte[]> data_;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

// Messages in a row in one buffer. A message with parts that lie elsewhere is always the last.
class Outgoing {
 public:
  // Bytes that lie elsewhere, between buffer[…, after) and what follows it.
  struct Part {
    std::size_t after;  // position in the buffer
    const void* data;
    std::size_t bytes;
    PyObject* strided;  // an array that is not contiguous: `data` is null, its elements in C order
  };

  Outgoing() = default;
  Outgoing(const Outgoing&) = delete;
  Outgoing& operator=(const Outgoing&) = delete;
  ~Outgoing() { clear(); }

  ByteBuffer& bytes() { return bytes_; }
  const std::vector<Part>& parts() const { return parts_; }
  bool has_strided() const { return has_strided_; }
  // Ends of the finished messages in bytes().
  const std::vector<std::uint64_t>& ends() const { return ends_; }
  std::size_t begin_of_message() const { return begin_; }
  const std::byte* bytes_data() const { return bytes_.data(); }
  std::size_t end_of_buffer() const { return bytes_.size(); }

  // Where the message that is being written would continue, counted from its beginning.
  std::size_t message_bytes() const { return bytes_.size() - begin_ + outside_; }
  void pad_to(std::size_t alignment) {
    const std::size_t over = message_bytes() % alignment;
    if (over != 0) std::memset(bytes_.extend(alignment - over), 0, alignment - over);
  }
  // `owner` is kept until clear().
  void add_part(const void* data, std::size_t bytes, PyObject* owner) {
    parts_.push_back({bytes_.size(), data, bytes, nullptr});
    keep(owner);
    outside_ += bytes;
  }
  void add_strided(PyObject* array, std::size_t bytes) {
    parts_.push_back({bytes_.size(), nullptr, bytes, array});
    keep(array);
    outside_ += bytes;
    has_strided_ = true;
  }
  void keep(PyObject* object) { kept_.push_back(Py_NewRef(object)); }
  void keep(const Py_buffer& buffer) { buffers_.push_back(buffer); }

  void end_message() {
    ends_.push_back(bytes_.size());
    begin_ = bytes_.size();
  }
  // Forgets what was written of the message that is being written.
  void restart_message() {
    bytes_.truncate(begin_);
    drop_parts();
  }
  void clear() {
    bytes_.clear();
    ends_.clear();
    begin_ = 0;
    drop_parts();
  }

 private:
  void drop_parts() {
    parts_.clear();
    outside_ = 0;
    has_strided_ = false;
    for (auto& buffer : buffers_) PyBuffer_Release(&buffer);
    buffers_.clear();
    // Dropping the last reference may run Python code that comes back here.
    std::vector<PyObject*> kept;
    kept.swap(kept_);
    for (PyObject* object : kept) Py_DECREF(object);
  }

  ByteBuffer bytes_;
  std::vector<std::uint64_t> ends_;
  std::vector<Part> parts_;
  std::vector<PyObject*> kept_;
  std::vector<Py_buffer> buffers_;
  std::size_t begin_ = 0;
  std::size_t outside_ = 0;
  bool has_strided_ = false;
};

}  // namespace gristmill::python
