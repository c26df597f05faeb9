#include "core/ring_mapping.h"

#include <sys/mman.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

namespace gristmill {

RingMapping::RingMapping(int fd, std::uint64_t offset, std::size_t bytes, std::atomic<bool>* lost) {
  // Addresses first, so that the two halves are sure to be neighbours.
  void* const reserved =
      ::mmap(nullptr, 2 * bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) {
    throw std::system_error(errno, std::generic_category(),
                            "cannot reserve " + std::to_string(2 * bytes) + " bytes of addresses for a ring");
  }
  data_ = static_cast<std::byte*>(reserved);
  reserved_ = 2 * bytes;
  for (std::size_t half = 0; half < 2; ++half) {
    if (::mmap(data_ + half * bytes, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
               static_cast<off_t>(offset)) == MAP_FAILED) {
      const int error = errno;
      reset();
      throw std::system_error(
          error, std::generic_category(),
          "cannot map a ring of " + std::to_string(bytes) + " bytes at offset " + std::to_string(offset));
    }
    if (lost == nullptr) continue;
    try {
      guards_[half] = MappingGuard(data_ + half * bytes, bytes, lost);
    } catch (...) {
      reset();
      throw;
    }
  }
}

RingMapping::RingMapping(RingMapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      reserved_(std::exchange(other.reserved_, 0)),
      guards_{std::move(other.guards_[0]), std::move(other.guards_[1])} {}

RingMapping& RingMapping::operator=(RingMapping&& other) noexcept {
  if (this != &other) {
    reset();
    data_ = std::exchange(other.data_, nullptr);
    reserved_ = std::exchange(other.reserved_, 0);
    for (int half = 0; half < 2; ++half) guards_[half] = std::move(other.guards_[half]);
  }
  return *this;
}

void RingMapping::reset() noexcept {
  for (MappingGuard& guard : guards_) guard.reset();
  if (data_ != nullptr) ::munmap(data_, reserved_);
  data_ = nullptr;
  reserved_ = 0;
}

}  // namespace gristmill
