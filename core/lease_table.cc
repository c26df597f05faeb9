#include "core/lease_table.h"

namespace gristmill {

int LeaseTable::claim(bool reclaim_dead, int hint) const {
  if (count_ <= 0) return -1;
  const std::uint64_t self = ProcessIdentity::self().pack();
  const int start = hint >= 0 ? hint % count_ : 0;
  for (int step = 0; step < count_; ++step) {
    const int index = start + step < count_ ? start + step : start + step - count_;
    std::uint64_t free = 0;
    if (leases_[index].owner.load(std::memory_order_relaxed) != 0) continue;
    // Acquire: pairs with release(), whose cleared value the new owner must see.
    if (leases_[index].owner.compare_exchange_strong(free, self, std::memory_order_acq_rel)) return index;
  }
  if (!reclaim_dead) return -1;
  for (int index = 0; index < count_; ++index) {
    std::uint64_t owner = leases_[index].owner.load(std::memory_order_acquire);
    if (owner == self || !ProcessIdentity::unpack(owner).proved_dead()) continue;
    // The dead never come back, so the exchange succeeds only from the very owner proved dead.
    if (leases_[index].owner.compare_exchange_strong(owner, self, std::memory_order_acq_rel)) {
      leases_[index].value.store(0, std::memory_order_release);
      return index;
    }
  }
  return -1;
}

void LeaseTable::release(int index) const {
  leases_[index].value.store(0, std::memory_order_release);
  // Release: pairs with the compare-exchange of the next claim().
  leases_[index].owner.store(0, std::memory_order_release);
}

bool LeaseTable::dead(int index) const {
  return ProcessIdentity::unpack(leases_[index].owner.load(std::memory_order_acquire)).proved_dead();
}

}  // namespace gristmill
