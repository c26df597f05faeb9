#pragma once

// One page of a shared-memory object mapped for writing, beside a mapping of the whole for reading: so a
// reader can say that it waits, and can still write to nothing else.

#include <atomic>
#include <cstddef>
#include <optional>

#include "core/mapping_guard.h"

namespace gristmill {

// Movable; unmaps at destruction.
class SharedPage {
 public:
  static constexpr std::size_t kBytes = 4096;

  // The page at `offset` (a multiple of kBytes) of what `fd` has open, though it may be open for reading
  // only: the object's own permissions decide, also when its name is gone. Nullopt where they, or the
  // system, refuse.
  // It is guarded (core/mapping_guard.h); `lost` must outlive it.
  static std::optional<SharedPage> map(int fd, std::size_t offset, std::atomic<bool>* lost);

  SharedPage(SharedPage&& other) noexcept;
  SharedPage& operator=(SharedPage&& other) noexcept;
  ~SharedPage();

  std::byte* data() const { return data_; }

 private:
  SharedPage(std::byte* data, std::atomic<bool>* lost) : data_(data), guard_(data, kBytes, lost) {}
  std::byte* data_ = nullptr;
  MappingGuard guard_;
};

}  // namespace gristmill
