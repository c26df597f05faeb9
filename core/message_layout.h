#pragma once

// What lies where in a message queue's segment, and what each shared word means.
//
//   payload │ MessageControl │ leases │ ring (whole pages, a page boundary before it)
//
// A record is a word and its data behind it. Its states, and who moves it from one to the next:
//
//   before `read`:   kReserved ──commit──► kReady            the owner of the reservation
//                    kReserved ──abandon─► kAbandoned        the owner, or recovery when it is dead
//   at `read`, whoever holds get_lock moves the cursor past the record; then it is
//     kReady                  copied out or dropped: consumed. No word is written for it
//     kAbandoned, kFiller     nothing to deliver
//     kTaken                  out in place, until released: then kReady, consumed
//     kCopying                its consumer copies it outside the lock; then kReady, consumed. Should the
//                             consumer die: kLate
//     kPassed (was kReserved) not yet committed: the others do not wait for it. commit: kLate
//     kLate                   to be delivered although the cursor is past it
//   `head` follows over records that are kReady, kAbandoned or kFiller.
//
// Hence each step is one store of one word, and a death between two of them is repaired by looking.

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/event_count.h"
#include "core/lease_table.h"
#include "core/message_queue.h"
#include "core/message_turn.h"
#include "core/robust_lock.h"

namespace gristmill {

enum class RecordState : std::uint64_t {
  kNone = 0,
  kReady = 1,
  kReserved = 2,
  kPassed = 3,
  kLate = 4,
  kAbandoned = 5,
  kFiller = 6,  // aligns the next record; not a message
  kTaken = 7,
  kCopying = 8,
};

// length (40 bits) │ lease (12 bits) │ state (4 bits) │ mark (8 bits)
struct RecordWord {
  static constexpr std::uint64_t kMark = 0xA7;
  // In the place of a kAbandoned record's lease: it was kPassed, and whoever abandoned it counted it in
  // `undelivered`. The cursor may come by it again, when the one who passed it died before it moved.
  static constexpr std::uint64_t kCounted = 1;

  std::uint64_t length = 0;
  RecordState state = RecordState::kNone;
  std::uint64_t lease = 0;  // who owns it, in the states that somebody owns

  // For `undelivered`, when the cursor moves past it.
  bool is_uncounted() const { return state == RecordState::kAbandoned && lease != kCounted; }

  std::uint64_t pack() const {
    return length << 24 | lease << 12 | static_cast<std::uint64_t>(state) << 8 | kMark;
  }
  // kNone for a word that no record has.
  static RecordWord unpack(std::uint64_t word) {
    const auto state = static_cast<RecordState>(word >> 8 & 15);
    if ((word & 0xFF) != kMark || state > RecordState::kCopying) return {};
    return {word >> 24, state, word >> 12 & 0xFFF};
  }
  // The same record when nothing is left to be done with it.
  RecordWord consumed() const { return {length, RecordState::kReady, 0}; }
  // What the record takes of the ring.
  std::uint64_t stride() const { return (sizeof(std::uint64_t) + length + 15) & ~std::uint64_t{15}; }
};

// A place in the stream of records, in one word, so that both of its parts move at once.
// position (in 16 bytes, modulo twice the ring; 38 bits) │ messages before it, modulo 2^26
struct MessageCursor {
  static constexpr int kCountBits = 26;
  static constexpr std::uint64_t kCountMask = (std::uint64_t{1} << kCountBits) - 1;

  std::uint64_t position = 0;  // in bytes
  std::uint64_t count = 0;

  std::uint64_t pack() const { return (position >> 4) << kCountBits | (count & kCountMask); }
  static MessageCursor unpack(std::uint64_t word) { return {(word >> kCountBits) << 4, word & kCountMask}; }
};

struct MessageControl {
  // Geometry: the creator, before READY. Whoever attaches copies and checks it once.
  std::uint64_t max_size_bytes = 0;
  std::uint64_t max_messages = 0;
  std::uint64_t overflow = 0;
  std::uint64_t geometry_hash = 0;

  // Holder of put_lock:
  alignas(64) RobustLock put_lock;
  std::uint64_t head_seen = 0;   // of `head`, not newer; in bytes
  std::uint64_t count_room = 0;  // messages that max_messages surely still allows
  // Producers that wait, without the lock:
  MessageTurns turns;
  // Read by consumers all the time, hence on a line of its own.
  alignas(64) std::atomic<std::uint64_t> tail{0};  // MessageCursor; what lies before it is in the queue
  std::atomic<std::uint64_t> puts{0};              // all of tail's count; behind it by a death at most

  // Holder of get_lock:
  alignas(64) RobustLock get_lock;
  std::atomic<std::uint64_t> late_seen{0};
  std::atomic<std::uint64_t> behind{0};            // records kPassed, kLate or kCopying; recounted in repair
  alignas(64) std::atomic<std::uint64_t> read{0};  // MessageCursor: the next to be delivered
  std::atomic<std::uint64_t> passes{0};            // all of read's count; behind it by a death at most
  alignas(64) std::atomic<std::uint64_t> head{0};  // in bytes: what lies before it is free

  // Anyone:
  alignas(64) EventCount not_empty;
  std::atomic<std::uint64_t> get_waits{0};
  alignas(64) EventCount not_full;
  std::atomic<std::uint64_t> put_waits{0};
  alignas(64) std::atomic<std::uint64_t> closed{0};
  std::atomic<std::uint64_t> late_events{0};  // a record became kLate; differs from late_seen
  std::atomic<std::int64_t> recovered_at{0};  // milliseconds, so that not every waiter looks
  std::atomic<std::uint64_t> skipped{0};
  std::atomic<std::uint64_t> undelivered{0};  // of skipped, those that the cursor is past
  std::atomic<std::uint64_t> dropped{0};
};

struct MessageLayout {
  static constexpr int kLeases = 1024;
  static_assert(kLeases <= 4096, "a record's word has 12 bits for one");

  MessageQueueOptions options;
  std::uint64_t count_limit = 0;  // max_messages, or what a cursor's count can tell
  std::uint64_t ring_bytes = 0;
  std::uint64_t largest_message = 0;
  std::uint64_t leases_offset = 0;
  std::uint64_t ring_offset = 0;
  std::size_t payload_bytes = 0;

  // Throws std::invalid_argument for options out of range.
  static MessageLayout of(const MessageQueueOptions& options);
  // Identifies the structures above; another build's may differ.
  static std::uint64_t hash();

  // In a fresh payload of payload_bytes zeros.
  void write(std::byte* payload) const;
  // From a segment's payload; trusts nothing in it. Throws std::invalid_argument.
  static MessageLayout read(const std::byte* payload, std::size_t payload_bytes);
};

}  // namespace gristmill
