#pragma once

// The ring of a message queue as one process sees it: arithmetic of positions, words and data of
// records, the process's lease. Positions run from 0 to twice the ring, so that an empty ring and a
// full one differ.

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/fault_point.h"
#include "core/message_copy.h"
#include "core/message_layout.h"
#include "core/ring_mapping.h"
#include "core/segment.h"

namespace gristmill {

class MessageRing {
 public:
  // The segment must outlive it. Throws std::system_error.
  MessageRing(const Segment& segment, const MessageLayout& layout)
      : control_(reinterpret_cast<MessageControl*>(segment.payload())),
        leases_(reinterpret_cast<Lease*>(segment.payload() + layout.leases_offset), MessageLayout::kLeases),
        mapping_(segment.fd(), Segment::kHeaderBytes + layout.ring_offset, layout.ring_bytes,
                 segment.lost_flag()),
        words_(mapping_.data() + 8),
        bytes_(layout.ring_bytes) {}

  MessageControl& control() const { return *control_; }
  const LeaseTable& leases() const { return leases_; }
  std::uint64_t bytes() const { return bytes_; }
  // Whether what was put is likely in a cache when it is taken.
  bool is_cached() const { return bytes_ <= kCachedRing; }

  std::uint64_t after(std::uint64_t position, std::uint64_t n) const {
    const std::uint64_t sum = position + n;
    return sum >= 2 * bytes_ ? sum - 2 * bytes_ : sum;
  }
  // From one position on to a later one. Of damaged ones, anything: check against bytes().
  std::uint64_t distance(std::uint64_t from, std::uint64_t to) const {
    return to >= from ? to - from : to + 2 * bytes_ - from;
  }
  bool valid(std::uint64_t position) const { return position < 2 * bytes_ && position % 16 == 0; }

  // REQUIRES: valid(position). Words are 8 bytes before 16-aligned data, and so never cross the end.
  std::byte* start(std::uint64_t position) const {
    return words_ + (position >= bytes_ ? position - bytes_ : position);
  }
  std::byte* data(std::uint64_t position) const { return start(position) + sizeof(std::uint64_t); }
  std::atomic_ref<std::uint64_t> word(std::uint64_t position) const { return word_at(start(position)); }
  static std::atomic_ref<std::uint64_t> word_at(std::byte* start) {
    return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(start));
  }
  // Before a write of `n` bytes at `at`, in the ring: where pages are touched for the first time, a read maps
  // sixteen of them for one fault, writable, a write maps its own alone.
  static void touch(const std::byte* at, std::uint64_t n) {
    constexpr std::uintptr_t kWindow = 64 * 1024;  // the kernel's fault_around_bytes
    const auto begin = reinterpret_cast<std::uintptr_t>(at);
    for (std::uintptr_t p = (begin | (kWindow - 1)) + 1; p < begin + n; p += kWindow) {
      static_cast<void>(*reinterpret_cast<const volatile std::uint8_t*>(p));
    }
  }
  // The record at `position` of at most `room` bytes; kNone when there is no such record.
  RecordWord record(std::uint64_t position, std::uint64_t room) const {
    // SYNC POINT: pairs with the release of whoever moved the record into its state.
    const RecordWord found = RecordWord::unpack(word(position).load(std::memory_order_acquire));
    return found.stride() <= room ? found : RecordWord{};
  }
  // Calls visit(position, record) from `from` to `to`; false when it meets what is no record.
  template <class Visit>
  bool walk(std::uint64_t from, std::uint64_t to, Visit&& visit) const {
    for (std::uint64_t left = distance(from, to); left > 0;) {
      const RecordWord found = record(from, left);
      if (found.state == RecordState::kNone) return false;
      visit(from, found);
      from = after(from, found.stride());
      left -= found.stride();
    }
    return true;
  }

 private:
  MessageControl* control_;
  LeaseTable leases_;
  RingMapping mapping_;
  std::byte* words_;
  std::uint64_t bytes_;
};

// The lease under which this process owns records. Any thread; a forked child claims its own.
class MessageLease {
 public:
  explicit MessageLease(const LeaseTable& leases) : leases_(leases) {}
  // Gives the lease back, unless something is still owned under it (then it is a case for recovery,
  // when the process is dead).
  ~MessageLease() {
    const std::uint64_t held = held_.load(std::memory_order_relaxed);
    if (held != 0 && held >> kBits == mine() && owned_.load(std::memory_order_relaxed) == 0) {
      leases_.release(static_cast<int>(held & kIndex));
    }
  }
  MessageLease(const MessageLease&) = delete;
  MessageLease& operator=(const MessageLease&) = delete;

  // Its index; -1 when there is none to be had.
  int get() {
    std::uint64_t held = held_.load(std::memory_order_relaxed);
    if (held >> kBits == mine()) return static_cast<int>(held & kIndex);
    // Never one of the dead's: records may be theirs still, until recovery frees it.
    const int index = leases_.claim(false, static_cast<int>(mine() % MessageLayout::kLeases));
    if (index < 0) return -1;
    if (held_.compare_exchange_strong(held, mine() << kBits | static_cast<std::uint64_t>(index))) {
      owned_.store(0, std::memory_order_relaxed);
      return index;
    }
    leases_.release(index);  // another thread was quicker
    return static_cast<int>(held & kIndex);
  }
  void own(std::int64_t records) { owned_.fetch_add(records, std::memory_order_relaxed); }

 private:
  static constexpr int kBits = 12;
  static constexpr std::uint64_t kIndex = (1 << kBits) - 1;
  static std::uint64_t mine() { return ProcessIdentity::self_packed() & (~std::uint64_t{0} >> kBits); }

  LeaseTable leases_;
  std::atomic<std::uint64_t> held_{0};  // the process │ index
  std::atomic<std::int64_t> owned_{0};
};

// Locks for at least a moment, also when the deadline has passed: "at once" is about space and
// messages, not about nanoseconds that another holds the lock.
class MessageGuard {
 public:
  static constexpr std::chrono::milliseconds kMoment{200};

  MessageGuard(RobustLock& lock, Deadline deadline) : lock_(lock), outcome_(lock.lock(Deadline::now())) {
    if (outcome_ != RobustLock::Outcome::kTimedOut) [[likely]]
      return;
    outcome_ = lock.lock(deadline.left() < kMoment ? Deadline::in(kMoment) : deadline);
  }
  ~MessageGuard() {
    if (held()) lock_.unlock();
  }
  MessageGuard(const MessageGuard&) = delete;
  MessageGuard& operator=(const MessageGuard&) = delete;

  bool held() const { return outcome_ <= RobustLock::Outcome::kOwnerDied; }
  bool owner_died() const { return outcome_ == RobustLock::Outcome::kOwnerDied; }
  // REQUIRES: !held()
  MessageQueue::Outcome failure() const {
    return outcome_ == RobustLock::Outcome::kTimedOut ? MessageQueue::Outcome::kTimedOut
                                                      : MessageQueue::Outcome::kBroken;
  }

 private:
  RobustLock& lock_;
  RobustLock::Outcome outcome_;
};

}  // namespace gristmill
