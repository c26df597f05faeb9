#include "core/trajectory_places.h"

#include <algorithm>
#include <array>

#include "core/fault_point.h"
#include "core/fence.h"

namespace gristmill {
namespace {

using Lock = RobustLock::Outcome;

// The lock is held for nanoseconds: a caller in no mood to wait still waits this long for it, so
// that a put is not refused just because another put is at it.
constexpr std::chrono::milliseconds kLockGrace{10};

class PlacesGuard {
 public:
  PlacesGuard(RobustLock& lock, Deadline deadline) : lock_(lock), outcome_(lock.lock(deadline)) {
    if (outcome_ == Lock::kTimedOut) outcome_ = lock.lock(Deadline::in(kLockGrace));
  }
  ~PlacesGuard() { unlock(); }
  PlacesGuard(const PlacesGuard&) = delete;
  PlacesGuard& operator=(const PlacesGuard&) = delete;

  Lock outcome() const { return outcome_; }
  void unlock() {
    if (outcome_ == Lock::kLocked || outcome_ == Lock::kOwnerDied) lock_.unlock();
    outcome_ = Lock::kTimedOut;
  }

 private:
  RobustLock& lock_;
  Lock outcome_;
};

}  // namespace

TrajectoryPlaces::TrajectoryPlaces(std::byte* payload, const QueueLayout& layout)
    : control_(reinterpret_cast<QueueControl*>(payload)),
      leases_(reinterpret_cast<Lease*>(payload + layout.leases_offset), QueueLayout::kLeases),
      words_(reinterpret_cast<std::atomic<std::uint64_t>*>(payload + layout.words_offset)),
      capacity_(layout.capacity) {}

TrajectoryPlaces::Tail TrajectoryPlaces::tail() const {
  const std::uint64_t tail = control_->tail.load(std::memory_order_acquire);
  return {tail >> 1, (tail & 1) != 0};
}

bool TrajectoryPlaces::may_claim() const {
  // Head first: it never passes a tail that is read later.
  const std::uint64_t head = control_->head.load(std::memory_order_acquire);
  const Tail end = tail();
  return end.closed || control_->abandoned.load(std::memory_order_relaxed) != 0 ||
         end.position - head < capacity_;
}

Claim TrajectoryPlaces::claim(std::uint64_t most, Deadline deadline, int* hint) const {
  // Not reclaim_dead: a dead producer's lease is freed in recover() only, when no place names it.
  const int lease = leases_.claim(false, *hint);
  if (lease < 0) return {Claim::Outcome::kNoLease};
  *hint = lease;
  GRISTMILL_FAULT_POINT("put.leased");
  Claim claim;
  {
    PlacesGuard guard(control_->lock, deadline);
    GRISTMILL_FAULT_POINT("put.locked");
    switch (guard.outcome()) {
      case Lock::kTimedOut:
        claim.outcome = Claim::Outcome::kTimedOut;
        break;
      case Lock::kBroken:
        claim.outcome = Claim::Outcome::kBroken;
        break;
      case Lock::kOwnerDied:
        repair_locked();
        [[fallthrough]];
      case Lock::kLocked:
        claim = claim_locked(most, lease);
        GRISTMILL_FAULT_POINT("put.claimed");
        break;
    }
  }
  GRISTMILL_FAULT_POINT("put.unlocked");
  if (claim.outcome != Claim::Outcome::kOk) leases_.release(lease);
  return claim;
}

Claim TrajectoryPlaces::claim_locked(std::uint64_t most, int lease) const {
  std::uint64_t tail_word = control_->tail.load(std::memory_order_relaxed);
  if ((tail_word & 1) != 0) return {Claim::Outcome::kClosed};
  const std::uint64_t tail = tail_word >> 1;
  // SYNC POINT: pairs with the consumer's store of head: it has done with the places below.
  const std::uint64_t head = control_->head.load(std::memory_order_acquire);
  if (!sound(head, tail)) return {Claim::Outcome::kBroken};
  if (control_->abandoned.load(std::memory_order_relaxed) != 0) {
    const Claim refill = refill_locked(most, lease, head, tail);
    if (refill.count > 0) return refill;
  }
  const std::uint64_t count = std::min(most, capacity_ - (tail - head));
  if (count == 0) return {Claim::Outcome::kFull};
  for (std::uint64_t p = tail; p != tail + count; ++p) {
    // Beyond the tail nobody looks: a claimant killed here leaves nothing.
    word(p).store(Place{p, lease, PlaceState::kClaimed}.pack(), std::memory_order_relaxed);
    GRISTMILL_FAULT_POINT("put.word");
  }
  // Release: whoever sees the tail sees the words below it. Fails only when close() was first.
  if (!control_->tail.compare_exchange_strong(tail_word, (tail + count) << 1, std::memory_order_acq_rel)) {
    return {Claim::Outcome::kClosed};
  }
  return {Claim::Outcome::kOk, tail, count, lease};
}

// The first run of abandoned places; count 0 when there is none.
Claim TrajectoryPlaces::refill_locked(std::uint64_t most, int lease, std::uint64_t head,
                                      std::uint64_t tail) const {
  Claim claim{Claim::Outcome::kOk, head, 0, lease};
  for (std::uint64_t p = head; p != tail && claim.count < most; ++p) {
    std::uint64_t found = word(p).load(std::memory_order_relaxed);
    const Place place = Place::unpack(found);
    const bool abandoned = place.position == p && place.state == PlaceState::kAbandoned;
    if (!abandoned && claim.count > 0) break;
    // By compare-exchange: after close() the consumer skips abandoned places without the lock.
    if (!abandoned || !word(p).compare_exchange_strong(found, Place{p, lease, PlaceState::kClaimed}.pack(),
                                                       std::memory_order_acq_rel)) {
      claim.begin = p + 1;
      continue;
    }
    ++claim.count;
    GRISTMILL_FAULT_POINT("refill.word");
  }
  const std::uint64_t hint = control_->abandoned.load(std::memory_order_relaxed);
  control_->abandoned.store(claim.count == 0 ? 0 : hint - std::min(hint, claim.count),
                            std::memory_order_relaxed);
  control_->refilled.fetch_add(claim.count, std::memory_order_relaxed);
  GRISTMILL_FAULT_POINT("refill.counted");
  return claim;
}

void TrajectoryPlaces::commit(const Claim& claim) const {
  GRISTMILL_FAULT_POINT("put.copied");
  for (std::uint64_t p = claim.begin; p != claim.begin + claim.count; ++p) {
    // SYNC POINT: pairs with the consumer's acquire of the word; the trajectory is visible then.
    word(p).store(Place{p, claim.lease, PlaceState::kReady}.pack(), std::memory_order_release);
    GRISTMILL_FAULT_POINT("put.ready");
  }
  // SYNC POINT: between the words and the load of `wanted`; pairs with the fence in the consumer's
  // prepare(), which follows its store of `wanted`.
  full_fence();
  // While the tail is short of it, the consumer's wish cannot be complete: let it sleep.
  const Tail end = tail();
  if (end.closed || end.position >= control_->wanted.load(std::memory_order_relaxed)) {
    control_->ready.notify_all();
  }
  GRISTMILL_FAULT_POINT("put.notified");
  leases_.release(claim.lease);
  GRISTMILL_FAULT_POINT("put.released");
}

std::int64_t TrajectoryPlaces::recover() const {
  // Who is dead is found out before the lock is taken: it costs system calls.
  std::array<std::uint64_t, QueueLayout::kLeases> dead{};
  const std::uint64_t self = ProcessIdentity::self().pack();
  bool any = false;
  for (int i = 0; i < leases_.count(); ++i) {
    const std::uint64_t owner = leases_[i].owner.load(std::memory_order_acquire);
    if (owner == 0 || owner == self || !ProcessIdentity::unpack(owner).proved_dead()) continue;
    dead[static_cast<std::size_t>(i)] = owner;
    any = true;
  }
  if (!any) return 0;
  GRISTMILL_FAULT_POINT("recover.judged");

  std::int64_t recovered = 0;
  {
    PlacesGuard guard(control_->lock, Deadline::in(kLockGrace));
    if (guard.outcome() == Lock::kTimedOut || guard.outcome() == Lock::kBroken) return 0;
    GRISTMILL_FAULT_POINT("recover.locked");
    if (guard.outcome() == Lock::kOwnerDied) repair_locked();
    const std::uint64_t head = control_->head.load(std::memory_order_acquire);
    const std::uint64_t tail = control_->tail.load(std::memory_order_relaxed) >> 1;
    if (!sound(head, tail)) return 0;
    // A lease may have been freed by another's recovery, and claimed by a living process, since it
    // was judged. Under the lock it cannot: only recover() frees a dead one.
    for (int i = 0; i < leases_.count(); ++i) {
      std::uint64_t& owner = dead[static_cast<std::size_t>(i)];
      if (owner != 0 && leases_[i].owner.load(std::memory_order_acquire) != owner) owner = 0;
    }
    for (std::uint64_t p = head; p != tail; ++p) {
      std::uint64_t found = word(p).load(std::memory_order_relaxed);
      const Place place = Place::unpack(found);
      if (place.position != p || place.state != PlaceState::kClaimed) continue;
      if (place.lease >= QueueLayout::kLeases || dead[static_cast<std::size_t>(place.lease)] == 0) continue;
      const std::uint64_t abandoned = Place{p, 0, PlaceState::kAbandoned}.pack();
      if (word(p).compare_exchange_strong(found, abandoned, std::memory_order_acq_rel)) ++recovered;
      GRISTMILL_FAULT_POINT("recover.word");
    }
    control_->abandoned.fetch_add(static_cast<std::uint64_t>(recovered), std::memory_order_relaxed);
    GRISTMILL_FAULT_POINT("recover.counted");
    for (int i = 0; i < leases_.count(); ++i) {
      std::uint64_t owner = dead[static_cast<std::size_t>(i)];
      if (owner == 0) continue;
      leases_[i].owner.compare_exchange_strong(owner, 0, std::memory_order_acq_rel);
      GRISTMILL_FAULT_POINT("recover.freed");
    }
  }
  GRISTMILL_FAULT_POINT("recover.unlocked");
  // Producers have room now; a consumer of a closed queue passes the abandoned places over.
  control_->space.notify_all();
  control_->ready.notify_all();
  return recovered;
}

// The former holder died somewhere in claim or recover. The words are the truth, each of them old or
// new; only the count of abandoned ones may have been left behind.
void TrajectoryPlaces::repair_locked() const {
  const std::uint64_t head = control_->head.load(std::memory_order_acquire);
  const std::uint64_t tail = control_->tail.load(std::memory_order_relaxed) >> 1;
  if (!sound(head, tail)) return;
  std::uint64_t abandoned = 0;
  for (std::uint64_t p = head; p != tail; ++p) {
    const Place place = Place::unpack(word(p).load(std::memory_order_relaxed));
    if (place.position == p && place.state == PlaceState::kAbandoned) ++abandoned;
  }
  control_->abandoned.store(abandoned, std::memory_order_relaxed);
  GRISTMILL_FAULT_POINT("repair.counted");
}

}  // namespace gristmill
