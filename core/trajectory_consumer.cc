#include "core/trajectory_consumer.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "core/fault_point.h"

namespace gristmill {

TrajectoryConsumer::TrajectoryConsumer(const TrajectoryPlaces& places)
    : places_(places), taken_(places.capacity(), 0) {}

bool TrajectoryConsumer::become() {
  QueueControl& control = places_.control();
  const std::uint64_t self = ProcessIdentity::self().pack();
  if (self_.load(std::memory_order_relaxed) == self) return true;
  std::uint64_t holder = control.consumer.load(std::memory_order_acquire);
  // Acquire: what the former consumer released is released.
  while (holder == 0 || ProcessIdentity::unpack(holder).proved_dead()) {
    if (!control.consumer.compare_exchange_strong(holder, self, std::memory_order_acq_rel)) continue;
    GRISTMILL_FAULT_POINT("get.became");
    std::lock_guard guard(mutex_);
    head_ = cursor_ = scanned_ = control.head.load(std::memory_order_acquire);
    std::fill(taken_.begin(), taken_.end(), 0);
    self_.store(self, std::memory_order_relaxed);
    return places_.sound(head_, places_.tail().position);
  }
  throw std::logic_error("process " + std::to_string(ProcessIdentity::unpack(holder).pid) +
                         (holder == self ? " (this one, through another TrajectoryQueue object)" : "") +
                         " is the queue's consumer and lives: expected one consumer at a time");
}

TrajectoryConsumer::Poll TrajectoryConsumer::poll(std::uint64_t n, std::uint64_t* count) {
  while (true) {
    // Before the words: once closed is seen, the tail is final and every claim below it visible.
    const TrajectoryPlaces::Tail end = places_.tail();
    if (!places_.sound(cursor_, end.position)) return Poll::kBroken;
    Place place;
    while (scanned_ != cursor_ + n) {
      // SYNC POINT: pairs with commit()'s release; the trajectory's bytes are visible.
      place = Place::unpack(places_.word(scanned_).load(std::memory_order_acquire));
      if (place.position != scanned_ || place.state != PlaceState::kReady) break;
      ++scanned_;
    }
    if (scanned_ - cursor_ >= n) {
      *count = n;
      return Poll::kReady;
    }
    if (!end.closed) return Poll::kWaiting;
    if (scanned_ != end.position) {
      if (place.position != scanned_) return Poll::kBroken;
      if (place.state == PlaceState::kClaimed) return Poll::kWaiting;  // a put that was before close()
    }
    *count = scanned_ - cursor_;
    if (*count > 0) return Poll::kReady;
    if (cursor_ == end.position) return Poll::kDrained;
    if (!skip_abandoned()) return Poll::kBroken;
  }
}

// The place at the cursor of a closed queue: no put will fill it any more.
bool TrajectoryConsumer::skip_abandoned() {
  std::uint64_t found = places_.word(cursor_).load(std::memory_order_acquire);
  const Place place = Place::unpack(found);
  if (place.state == PlaceState::kAbandoned) {
    // Against a put that had looked at `closed` before it was set: one of the two gets the place.
    const std::uint64_t skipped = Place{cursor_, 0, PlaceState::kSkipped}.pack();
    if (!places_.word(cursor_).compare_exchange_strong(found, skipped, std::memory_order_acq_rel))
      return true;
  } else if (place.state != PlaceState::kSkipped) {
    return place.state == PlaceState::kClaimed || place.state == PlaceState::kReady;  // refilled just now
  }
  GRISTMILL_FAULT_POINT("get.skipped");
  std::lock_guard guard(mutex_);
  if (!move_cursor_locked(1, true)) return false;
  places_.control().skipped.fetch_add(1, std::memory_order_relaxed);
  scanned_ = cursor_;
  advance_head_locked();
  return true;
}

bool TrajectoryConsumer::take(std::uint64_t count, std::uint64_t* begin) {
  std::lock_guard guard(mutex_);
  *begin = cursor_;
  return move_cursor_locked(count, false);
}

bool TrajectoryConsumer::move_cursor_locked(std::uint64_t count, bool released) {
  if (cursor_ - head_ + count > taken_.size()) return false;
  taken(cursor_) = count << 1 | (released ? 1 : 0);
  cursor_ += count;
  return true;
}

void TrajectoryConsumer::release(std::uint64_t begin, std::uint64_t count) {
  if (self_.load(std::memory_order_relaxed) != ProcessIdentity::self().pack()) return;
  {
    std::lock_guard guard(mutex_);
    taken(begin) = count << 1 | 1;
    GRISTMILL_FAULT_POINT("release.marked");
    advance_head_locked();
  }
  GRISTMILL_FAULT_POINT("release.head");
  places_.control().space.notify_all();
  GRISTMILL_FAULT_POINT("release.notified");
}

void TrajectoryConsumer::advance_head_locked() {
  const std::uint64_t before = head_;
  while (head_ != cursor_ && (taken(head_) & 1) != 0) head_ += taken(head_) >> 1;
  // SYNC POINT: pairs with the acquire in claim_locked(): the places may be overwritten.
  if (head_ != before) places_.control().head.store(head_, std::memory_order_release);
}

void TrajectoryConsumer::resign() noexcept {
  std::uint64_t self = self_.exchange(0, std::memory_order_relaxed);
  // A forked child inherited the word, not the role.
  if (self == 0 || self != ProcessIdentity::self().pack()) return;
  places_.control().consumer.compare_exchange_strong(self, 0, std::memory_order_acq_rel);
}

}  // namespace gristmill
