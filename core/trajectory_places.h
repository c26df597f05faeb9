#pragma once

// The places of a trajectory queue, as producers and whoever recovers see them: claim under the
// lock, copy outside it, commit with one store a place. Everything is in shared memory; every
// process may be killed at any instruction.

#include <atomic>
#include <cstdint>

#include "core/deadline.h"
#include "core/trajectory_layout.h"

namespace gristmill {

// Consecutive places, held by `lease` until committed.
struct Claim {
  enum class Outcome { kOk, kFull, kNoLease, kTimedOut, kClosed, kBroken };
  Outcome outcome = Outcome::kOk;
  std::uint64_t begin = 0;
  std::uint64_t count = 0;
  int lease = -1;
};

// A view; any process, any thread.
class TrajectoryPlaces {
 public:
  TrajectoryPlaces() = default;
  TrajectoryPlaces(std::byte* payload, const QueueLayout& layout);

  QueueControl& control() const { return *control_; }
  std::uint64_t capacity() const { return capacity_; }
  std::atomic<std::uint64_t>& word(std::uint64_t position) const { return words_[position % capacity_]; }

  // Up to `most` consecutive places: abandoned ones first, else new ones at the tail. Waits only for
  // the lock. kOk: the caller holds them, with a lease, until commit(). `hint`: where the search for a
  // lease starts, for the caller to keep.
  Claim claim(std::uint64_t most, Deadline deadline, int* hint) const;
  // The places hold their trajectories: makes them ready, wakes the consumer if that may complete
  // what it waits for, and gives the lease back.
  void commit(const Claim& claim) const;
  // True when claim() may find a place, or the queue is closed.
  bool may_claim() const;

  // Turns places whose claimants are proved dead into abandoned ones; returns how many. Waits for
  // the lock for a short time at most.
  std::int64_t recover() const;

  struct Tail {
    std::uint64_t position;
    bool closed;
  };
  Tail tail() const;
  // Whether head and tail can belong together.
  bool sound(std::uint64_t head, std::uint64_t tail) const { return tail - head <= capacity_; }

 private:
  Claim claim_locked(std::uint64_t most, int lease) const;
  Claim refill_locked(std::uint64_t most, int lease, std::uint64_t head, std::uint64_t tail) const;
  void repair_locked() const;

  QueueControl* control_ = nullptr;
  LeaseTable leases_;
  std::atomic<std::uint64_t>* words_ = nullptr;
  std::uint64_t capacity_ = 0;
};

}  // namespace gristmill
