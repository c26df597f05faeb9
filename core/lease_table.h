#pragma once

// Who may own something in a segment holds a lease: one cache line with its identity in one word.
// Only proved death takes a lease away; a slow or stopped process keeps what it has.

#include <atomic>
#include <cstdint>

#include "core/process_identity.h"

namespace gristmill {

// In shared memory. owner: written by whoever claims (compare-exchange) and by the owner when it
// releases; value: by the owner only.
struct alignas(64) Lease {
  std::atomic<std::uint64_t> owner{0};  // ProcessIdentity::pack(), 0: free
  std::atomic<std::uint64_t> value{0};  // what it protects; the meaning is the user's. 0: nothing
};
static_assert(sizeof(Lease) == 64);

// A view of `count` leases in shared memory. Any process, any thread; lock-free.
class LeaseTable {
 public:
  LeaseTable() = default;
  LeaseTable(Lease* leases, int count) : leases_(leases), count_(count) {}

  int count() const { return count_; }
  Lease& operator[](int index) const { return leases_[index]; }

  // Claims a free lease for the calling process, starting the search at `hint`; when none is free
  // and reclaim_dead, one whose owner is proved dead, its value cleared. -1 when all are held by
  // the living.
  int claim(bool reclaim_dead, int hint = 0) const;
  // By the owner. Clears the value first (release).
  void release(int index) const;
  // True when the lease is held by a process that is proved dead.
  bool dead(int index) const;

 private:
  Lease* leases_ = nullptr;
  int count_ = 0;
};

}  // namespace gristmill
