#pragma once

// The full fence of store-then-load protocols (Dekker): of two sides that each store, fence, and
// load what the other stored, at least one sees the other's store.

#include <atomic>

namespace gristmill {

inline void full_fence() {
#if defined(__SANITIZE_THREAD__)
  // The thread sanitizer does not model fences; read-modify-writes of one word order the same.
  static std::atomic<unsigned> word{0};
  word.fetch_add(1, std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace gristmill
