#include "core/mapping_guard.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <mutex>
#include <system_error>
#include <utility>

namespace gristmill {

// `end` is 0 while the range is free. Written by its guard; read by the handler, which may run in any thread
// at any time, but looks for an address that is being used: its range is complete and stays so meanwhile.
struct MappingGuard::Range {
  std::atomic<bool> taken{false};
  std::atomic<std::uintptr_t> begin{0};
  std::atomic<std::uintptr_t> end{0};
  std::atomic<std::atomic<bool>*> lost{nullptr};
};

namespace {

// Never freed, so that the handler may walk it without a lock.
struct Chunk {
  static constexpr std::size_t kRanges = 64;
  MappingGuard::Range ranges[kRanges];
  Chunk* next = nullptr;  // before the chunk is seen
};

std::atomic<Chunk*> first_chunk{nullptr};
std::uintptr_t page_bytes = 4096;
struct sigaction former {};

bool lay_zeros_over(std::uintptr_t address) {
  for (Chunk* chunk = first_chunk.load(std::memory_order_acquire); chunk != nullptr; chunk = chunk->next) {
    for (MappingGuard::Range& range : chunk->ranges) {
      const std::uintptr_t end = range.end.load(std::memory_order_acquire);
      if (address >= end || address < range.begin.load(std::memory_order_relaxed)) continue;
      // What lies behind the page is gone as well: a file loses its end.
      const std::uintptr_t page = address / page_bytes * page_bytes;
      if (::mmap(reinterpret_cast<void*>(page), end - page, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == MAP_FAILED) {
        return false;
      }
      range.lost.load(std::memory_order_relaxed)->store(true, std::memory_order_release);
      return true;
    }
  }
  return false;
}

void on_bus_error(int number, siginfo_t* info, void* context) {
  const int error = errno;
  if (info->si_code == BUS_ADRERR && lay_zeros_over(reinterpret_cast<std::uintptr_t>(info->si_addr))) {
    errno = error;
    return;
  }
  if ((former.sa_flags & SA_SIGINFO) != 0) {
    former.sa_sigaction(number, info, context);
  } else if (former.sa_handler != SIG_DFL && former.sa_handler != SIG_IGN) {
    former.sa_handler(number);
  } else {
    ::sigaction(SIGBUS, &former, nullptr);
    if (info->si_code <= 0) ::raise(number);  // sent by somebody; a fault comes again by itself
  }
  errno = error;
}

void install() {
  page_bytes = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  if (::sigaction(SIGBUS, &action, &former) != 0) {
    throw std::system_error(errno, std::generic_category(), "cannot handle SIGBUS");
  }
}

MappingGuard::Range* take_free_range() {
  while (true) {
    Chunk* const first = first_chunk.load(std::memory_order_acquire);
    for (Chunk* chunk = first; chunk != nullptr; chunk = chunk->next) {
      for (MappingGuard::Range& range : chunk->ranges) {
        if (!range.taken.load(std::memory_order_relaxed) && !range.taken.exchange(true)) return &range;
      }
    }
    auto* const more = new Chunk;
    more->next = first;
    Chunk* expected = first;
    if (!first_chunk.compare_exchange_strong(expected, more, std::memory_order_acq_rel)) delete more;
  }
}

}  // namespace

MappingGuard::MappingGuard(void* begin, std::size_t bytes, std::atomic<bool>* lost) {
  static std::once_flag installed;
  std::call_once(installed, install);
  range_ = take_free_range();
  const auto at = reinterpret_cast<std::uintptr_t>(begin);
  range_->begin.store(at, std::memory_order_relaxed);
  range_->lost.store(lost, std::memory_order_relaxed);
  range_->end.store(at + bytes, std::memory_order_release);
}

MappingGuard::MappingGuard(MappingGuard&& other) noexcept : range_(std::exchange(other.range_, nullptr)) {}

MappingGuard& MappingGuard::operator=(MappingGuard&& other) noexcept {
  if (this != &other) {
    reset();
    range_ = std::exchange(other.range_, nullptr);
  }
  return *this;
}

void MappingGuard::reset() noexcept {
  Range* const range = std::exchange(range_, nullptr);
  if (range == nullptr) return;
  range->end.store(0, std::memory_order_release);
  range->taken.store(false, std::memory_order_release);
}

}  // namespace gristmill
