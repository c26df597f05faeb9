#include "python/bindings/memory_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <deque>

namespace gristmill::python {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
// From here on fresh memory is mapped, page by page.
constexpr std::size_t kPopulateFrom = 64 * 1024;

// Sizes come in classes, four from each power of two to the next: what is used again fits all of its class,
// and wastes a fifth at most.
constexpr int kSmallest = 10;  // 2^10 bytes
constexpr std::size_t kClasses = 4 * 40;

struct SizeClass {
  std::size_t index;
  std::size_t bytes;
};

SizeClass class_of(std::size_t bytes) {
  bytes = std::max(bytes, std::size_t{1} << kSmallest);
  const auto power = static_cast<int>(std::bit_width(bytes - 1)) - 1;  // 2^power < bytes <= 2^(power + 1)
  const std::size_t step = std::size_t{1} << (power - 2);
  const std::size_t steps = (bytes + step - 1) / step;  // 5 to 8
  return {static_cast<std::size_t>(power - (kSmallest - 1)) * 4 + steps - 5, steps * step};
}

struct Free {
  std::byte* data;
  std::uint64_t since;  // in times that something was given back
};

// Guarded by the GIL. Never destroyed: arrays may outlive every static object.
std::array<std::deque<Free>, kClasses>& pool() {
  static auto* free = new std::array<std::deque<Free>, kClasses>;
  return *free;
}
std::size_t pooled_bytes = 0;
std::uint64_t times = 0;

// Of every class the first is the one that was not used for longest. The pool holds something.
void free_oldest() {
  const auto since = [](const std::deque<Free>& free) {
    return free.empty() ? UINT64_MAX : free.front().since;
  };
  const auto oldest = std::ranges::min_element(pool(), {}, since);
  const auto index = static_cast<std::size_t>(oldest - pool().begin());
  std::free(oldest->front().data);
  oldest->pop_front();
  const std::size_t step = std::size_t{1} << (index / 4 + (kSmallest - 3));
  pooled_bytes -= (index % 4 + 5) * step;
}

}  // namespace

std::byte* allocate_memory(std::size_t bytes, std::size_t* allocated) {
  if (bytes > kPooledBytes) {
    *allocated = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  } else {
    const SizeClass wanted = class_of(bytes);
    *allocated = wanted.bytes;
    auto& free = pool()[wanted.index];
    if (!free.empty()) {
      // The last given back is the likeliest in a cache.
      std::byte* const data = free.back().data;
      free.pop_back();
      pooled_bytes -= wanted.bytes;
      return data;
    }
  }
  void* data = nullptr;
  const std::size_t alignment = *allocated >= kHugePage       ? kHugePage
                                : *allocated >= kPopulateFrom ? std::size_t{4096}
                                                              : kAlignment;
  if (posix_memalign(&data, alignment, *allocated) != 0) return nullptr;
  if (*allocated >= kHugePage) {
    madvise(data, *allocated, MADV_HUGEPAGE);
  } else if (*allocated >= kPopulateFrom) {
#ifdef MADV_POPULATE_WRITE
    madvise(data, bytes, MADV_POPULATE_WRITE);  // half of what as many faults cost
#endif
  }
  return static_cast<std::byte*>(data);
}

void give_back_memory(std::byte* data, std::size_t allocated) {
  if (allocated > kPooledBytes) {
    std::free(data);
    return;
  }
  while (pooled_bytes + allocated > kPooledBytes) free_oldest();
  pool()[class_of(allocated).index].push_back({data, ++times});
  pooled_bytes += allocated;
}

}  // namespace gristmill::python
