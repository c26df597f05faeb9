#include "core/shared_page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <utility>

namespace gristmill {

std::optional<SharedPage> SharedPage::map(int fd, std::size_t offset, std::atomic<bool>* lost) {
  // By descriptor, not by name: another object may have that name by now.
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  const int writable = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (writable < 0) return std::nullopt;
  void* data =
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, writable, static_cast<off_t>(offset));
  ::close(writable);
  if (data == MAP_FAILED) return std::nullopt;
  return SharedPage(static_cast<std::byte*>(data), lost);
}

SharedPage::SharedPage(SharedPage&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), guard_(std::move(other.guard_)) {}

SharedPage& SharedPage::operator=(SharedPage&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(guard_, other.guard_);
  return *this;
}

SharedPage::~SharedPage() {
  guard_.reset();
  if (data_ != nullptr) ::munmap(data_, kBytes);
}

}  // namespace gristmill
