#pragma once

// Mappings whose file may lose its end while they live: another process of the same user can cut a segment
// short, and whoever touches what is gone then gets SIGBUS. A handler, installed with the first guard, lays
// zeroed memory of this process's own over the rest of the mapping instead and says so in a flag: whoever
// uses the mapping looks at the flag and gives a typed error.
//
// Any other SIGBUS goes to the handler that was there before, or ends the process as ever. Whoever installs
// a handler of his own later (Python's faulthandler is one) takes the signal away from this one.

#include <atomic>
#include <cstddef>

namespace gristmill {

class MappingGuard {
 public:
  MappingGuard() = default;
  // [begin, begin + bytes), whole pages; `lost` must outlive the guard, and may serve several. Any thread.
  // Throws std::bad_alloc, std::system_error.
  MappingGuard(void* begin, std::size_t bytes, std::atomic<bool>* lost);
  MappingGuard(MappingGuard&& other) noexcept;
  MappingGuard& operator=(MappingGuard&& other) noexcept;
  // Before the mapping itself goes.
  ~MappingGuard() { reset(); }
  void reset() noexcept;

  struct Range;

 private:
  Range* range_ = nullptr;
};

}  // namespace gristmill
