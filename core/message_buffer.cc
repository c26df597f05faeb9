#include "core/message_buffer.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace gristmill {
namespace {
constexpr std::align_val_t kAlign{64};
constexpr std::size_t kLeast = 4096;
}  // namespace

void MessageBuffer::Free::operator()(std::byte* data) const { ::operator delete[](data, kAlign); }

void MessageBuffer::clear() {
  if (capacity_ > kKeepBytes && used_ < capacity_ / 4) trim();
  records_.clear();
  used_ = 0;
}

void MessageBuffer::trim() {
  data_.reset();
  capacity_ = 0;
  used_ = 0;
  records_ = {};
}

void MessageBuffer::grow(std::size_t more) {
  const std::size_t needed = used_ + more;
  if (needed <= capacity_) return;
  // Exactly what a large message needs; small ones double, so that growing stays rare.
  const std::size_t doubled = std::min(capacity_ * 2, kKeepBytes);
  const std::size_t bytes = std::max({needed, doubled, kLeast});
  std::unique_ptr<std::byte[], Free> data(static_cast<std::byte*>(::operator new[](bytes, kAlign)));
  if (used_ > 0) std::memcpy(data.get(), data_.get(), used_);
  data_ = std::move(data);
  capacity_ = bytes;
}

}  // namespace gristmill
