#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/mapping_guard.h"

namespace gristmill {

// A range of a file mapped twice in a row, so that a run that crosses its end goes on at its
// beginning: byte i and byte i + bytes are the same memory. Movable; unmaps at destruction.
class RingMapping {
 public:
  RingMapping() = default;
  // offset and bytes: whole pages, bytes > 0. With `lost`, which must outlive it, both halves are guarded
  // (core/mapping_guard.h). Throws std::system_error.
  RingMapping(int fd, std::uint64_t offset, std::size_t bytes, std::atomic<bool>* lost = nullptr);
  RingMapping(RingMapping&& other) noexcept;
  RingMapping& operator=(RingMapping&& other) noexcept;
  ~RingMapping() { reset(); }

  std::byte* data() const { return data_; }

 private:
  void reset() noexcept;

  std::byte* data_ = nullptr;
  std::size_t reserved_ = 0;
  MappingGuard guards_[2];
};

}  // namespace gristmill
