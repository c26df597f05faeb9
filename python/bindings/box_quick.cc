#include "python/bindings/box_quick.h"

#include <chrono>
#include <cstring>

#include "python/bindings/waiting.h"

namespace gristmill::python {

bool QuickChanges::add_text(const BoxField& field, PyObject* value) {
  Py_ssize_t size = 0;
  const char* data = nullptr;
  if (field.type == ScalarType::kText) {
    // Of plain ASCII the text itself; of others what encoding it has made, kept by the string.
    if (!PyUnicode_CheckExact(value)) return false;
    data = PyUnicode_AsUTF8AndSize(value, &size);
    if (data == nullptr) PyErr_Clear();
  } else if (field.type == ScalarType::kBytes && PyBytes_CheckExact(value)) {
    data = PyBytes_AS_STRING(value);
    size = PyBytes_GET_SIZE(value);
  }
  if (data == nullptr || size > static_cast<Py_ssize_t>(field.capacity)) return false;
  const std::size_t count = 1 + (static_cast<std::size_t>(size) + 7) / 8;
  if (count > kWords - used_) return false;
  std::uint64_t* const to = words_.data() + used_;
  to[count - 1] = 0;
  to[0] = static_cast<std::uint64_t>(size);
  std::memcpy(to + 1, data, static_cast<std::size_t>(size));
  changes()[pieces_++] = {field.word, {to, count}};
  used_ += count;
  return true;
}

bool QuickChanges::add_array(const BoxField& field, PyObject* value) {
  if (state_.array_count > kMost) return false;
  const std::byte* memory = plain_memory(field, value, false);
  if (memory == nullptr) return false;
  if (arrays_ == 0) pointers_.fill(nullptr);
  arrays_ = state_.array_count;
  pointers_[static_cast<std::size_t>(field.array)] = memory;
  bytes_ += field.bytes;
  return true;
}

QuickChanges::Committed QuickChanges::commit(const std::shared_ptr<BoxState>& state, std::uint64_t* version) {
  if (state_.box->read_only()) return Committed::kNot;
  const std::span<const Box::Words> scalars(changes().data(), pieces_);
  const std::span<const std::byte* const> arrays(pointers_.data(), arrays_);
  Box::PublishResult result;
  std::shared_ptr<BoxState> held;  // it may be closed during the copy
  if (bytes_ < kCopyWithoutGil) {
    result = state_.box->update(scalars, arrays, Deadline::now());
  } else {
    held = state;
    const py::gil_scoped_release release;
    result = held->box->update(scalars, arrays, Deadline::in(kSignalSlice));
  }
  if (result.outcome == Box::PublishOutcome::kOk) [[likely]] {
    *version = result.version;
    return Committed::kYes;
  }
  if (result.outcome == Box::PublishOutcome::kTimedOut) return Committed::kNot;
  guarded([&]() -> PyObject* {
    version_or_throw(state_, result);
    return nullptr;
  });
  return Committed::kError;
}

}  // namespace gristmill::python
