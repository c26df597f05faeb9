#pragma once

// The producers' side of a message queue: everything under put_lock.

#include <algorithm>
#include <cstdint>

#include "core/message_ring.h"
#include "core/message_turn.h"

namespace gristmill {

// What one step did. A step is one hold of a lock.
struct MessageStep {
  enum class Result {
    kDone,
    kNothing,  // writer: full. reader: empty
    kNoLease,
    kClosed,
    kTimedOut,  // waiting for the lock
    kBroken,
    kGrow,  // reader: the buffer needs `count` bytes more
  };
  Result result = Result::kDone;
  std::uint64_t count = 0;     // messages
  std::uint64_t position = 0;  // of the (last) record
  std::uint64_t freed = 0;     // reader: records whose space is free now
  bool left = false;           // reader: more may be ready

  static MessageStep of(MessageQueue::Outcome failure) {
    return {failure == MessageQueue::Outcome::kTimedOut ? Result::kTimedOut : Result::kBroken};
  }
};

class MessageWriter {
 public:
  // A hold of the lock copies about this much at most.
  static constexpr std::uint64_t kHoldBytes = std::uint64_t{128} << 10;
  // The most that a filler takes.
  static constexpr std::uint64_t kFillerBytes = 48;
  // Data of so many bytes is aligned to 64, as reservations always are: a copy to an address that is not
  // takes twice as long.
  static constexpr std::uint64_t kAlignedBytes = 1024;

  MessageWriter(const MessageRing& ring, const MessageLayout& layout, MessageLease& lease)
      : ring_(ring), count_limit_(layout.count_limit), lease_(lease) {}

  // Copies the small messages of `source` from `first` on, up to the next large one, while there is
  // space. Source: see core/message_source.h.
  // kNothing while another has the turn. turn: null for a put that has not waited yet.
  template <class Source>
  MessageStep append(const Source& source, std::uint64_t first, Deadline deadline, const MessageTurn* turn);
  // Reserves a record for `length` bytes at step.position: kReserved, owned by this process. Likewise.
  MessageStep reserve(std::uint64_t length, Deadline deadline, const MessageTurn* turn);
  // REQUIRES: the record is this process's reservation of `reserved` bytes. length <= reserved.
  void commit(std::uint64_t position, std::uint64_t reserved, std::uint64_t length);
  void abandon(std::uint64_t position, std::uint64_t reserved);

  // Whether append(), or reserve() when `reserved`, may find space for a message of `length` bytes, or
  // the queue closed.
  bool may_put(std::uint64_t length, bool reserved, const MessageTurn* turn) const;
  MessageStep close(Deadline deadline);

 private:
  bool is_anothers(const MessageTurn* turn) const {
    MessageTurns& turns = ring_.control().turns;
    if (turns.turn.load(std::memory_order_relaxed) == 0) [[likely]]
      return false;
    return turn != nullptr ? turn->is_anothers() : MessageTurn(turns).is_anothers();
  }
  enum class Room { kYes, kNo, kBroken };
  Room room(std::uint64_t tail, std::uint64_t need);
  bool room_for_one_more(std::uint64_t tail_count);
  bool load_tail(MessageCursor* tail) const {
    *tail = MessageCursor::unpack(ring_.control().tail.load(std::memory_order_relaxed));
    return ring_.valid(tail->position);
  }
  static std::uint64_t filler_before(std::uint64_t position) { return (64 + 48 - position % 64) % 64; }
  // Writes a filler; returns the position behind it.
  std::uint64_t fill(std::uint64_t position, std::uint64_t filler) {
    const RecordWord word{filler - sizeof(std::uint64_t), RecordState::kFiller, 0};
    ring_.word(position).store(word.pack(), std::memory_order_relaxed);
    GRISTMILL_FAULT_POINT("message.put.filler");
    return ring_.after(position, filler);
  }
  void publish(const MessageCursor& tail, std::uint64_t messages);
  void repair_locked();
  void finish(std::uint64_t position, std::uint64_t reserved, const RecordWord& now, RecordState when_passed);

  const MessageRing& ring_;
  std::uint64_t count_limit_;
  MessageLease& lease_;
};

inline MessageWriter::Room MessageWriter::room(std::uint64_t tail, std::uint64_t need) {
  MessageControl& control = ring_.control();
  std::uint64_t used = ring_.distance(control.head_seen, tail);
  if (used > ring_.bytes() || need > ring_.bytes() - used) {
    // SYNC POINT: pairs with the readers' release: they are done with what lies before head.
    const std::uint64_t head = control.head.load(std::memory_order_acquire);
    used = ring_.distance(head, tail);
    if (!ring_.valid(head) || used > ring_.bytes()) return Room::kBroken;
    control.head_seen = head;
  }
  return need <= ring_.bytes() - used ? Room::kYes : Room::kNo;
}

inline void MessageWriter::publish(const MessageCursor& tail, std::uint64_t messages) {
  MessageControl& control = ring_.control();
  // SYNC POINT: pairs with the readers' acquire; the records before it are complete, or reserved.
  control.tail.store(tail.pack(), std::memory_order_release);
  GRISTMILL_FAULT_POINT("message.put.published");
  control.puts.store(control.puts.load(std::memory_order_relaxed) + messages, std::memory_order_relaxed);
}

template <class Source>
MessageStep MessageWriter::append(const Source& source, std::uint64_t first, Deadline deadline,
                                  const MessageTurn* turn) {
  using Result = MessageStep::Result;
  MessageControl& control = ring_.control();
  MessageGuard guard(control.put_lock, deadline);
  if (!guard.held()) return MessageStep::of(guard.failure());
  GRISTMILL_FAULT_POINT("message.put.locked");
  if (guard.owner_died()) repair_locked();
  if (control.closed.load(std::memory_order_relaxed) != 0) return {Result::kClosed};
  if (is_anothers(turn)) [[unlikely]]
    return {Result::kNothing};
  MessageCursor tail;
  if (!load_tail(&tail)) return {Result::kBroken};
  std::uint64_t position = tail.position;
  std::uint64_t last = position;
  std::uint64_t copied = 0;
  std::uint64_t done = 0;
  Result why = Result::kDone;
  for (std::uint64_t i = first; i < source.count() && copied < kHoldBytes; ++i) {
    const RecordWord record{source.length(i), RecordState::kReady, 0};
    if (record.length > MessageQueue::kLargeMessage) break;
    const std::uint64_t filler = record.length >= kAlignedBytes ? filler_before(position) : 0;
    const Room found = room(position, filler + record.stride());
    if (found != Room::kYes) why = found == Room::kNo ? Result::kNothing : Result::kBroken;
    if (why == Result::kDone && !room_for_one_more(tail.count + done)) why = Result::kNothing;
    if (why != Result::kDone) break;
    MessageRing::touch(ring_.start(position), filler + record.stride());
    if (filler > 0) position = fill(position, filler);
    ring_.word(position).store(record.pack(), std::memory_order_relaxed);
    GRISTMILL_FAULT_POINT("message.put.word");
    source.copy(i, ring_.data(position),
                [](std::byte* to, const std::byte* from, std::size_t n) { copy_bytes(to, from, n); });
    GRISTMILL_FAULT_POINT("message.put.copied");
    last = position;
    position = ring_.after(position, record.stride());
    copied += record.stride();
    --control.count_room;
    ++done;
  }
  if (done == 0) return {why};
  publish({position, tail.count + done}, done);
  return {Result::kDone, done, last};
}

}  // namespace gristmill
