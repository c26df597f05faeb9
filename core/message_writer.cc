#include "core/message_writer.h"

namespace gristmill {
namespace {

using Result = MessageStep::Result;

}  // namespace

bool MessageWriter::room_for_one_more(std::uint64_t tail_count) {
  MessageControl& control = ring_.control();
  if (control.count_room > 0 && control.count_room <= count_limit_) return true;
  const auto read = MessageCursor::unpack(control.read.load(std::memory_order_acquire));
  const std::uint64_t in = (tail_count - read.count) & MessageCursor::kCountMask;
  const std::uint64_t waiting = in + control.behind.load(std::memory_order_relaxed);
  control.count_room = waiting < count_limit_ ? count_limit_ - waiting : 0;
  return control.count_room > 0;
}

MessageStep MessageWriter::reserve(std::uint64_t length, Deadline deadline, const MessageTurn* turn) {
  MessageControl& control = ring_.control();
  const int lease = lease_.get();
  if (lease < 0) return {Result::kNoLease};
  GRISTMILL_FAULT_POINT("message.reserve.lease");
  MessageGuard guard(control.put_lock, deadline);
  if (!guard.held()) return MessageStep::of(guard.failure());
  GRISTMILL_FAULT_POINT("message.reserve.locked");
  if (guard.owner_died()) repair_locked();
  if (control.closed.load(std::memory_order_relaxed) != 0) return {Result::kClosed};
  if (is_anothers(turn)) return {Result::kNothing};
  MessageCursor tail;
  if (!load_tail(&tail)) return {Result::kBroken};
  const RecordWord record{length, RecordState::kReserved, static_cast<std::uint64_t>(lease)};
  const std::uint64_t filler = filler_before(tail.position);
  switch (room(tail.position, filler + record.stride())) {
    case Room::kBroken:
      return {Result::kBroken};
    case Room::kNo:
      return {Result::kNothing};
    case Room::kYes:
      break;
  }
  if (!room_for_one_more(tail.count)) return {Result::kNothing};
  const std::uint64_t position = filler > 0 ? fill(tail.position, filler) : tail.position;
  ring_.word(position).store(record.pack(), std::memory_order_relaxed);
  GRISTMILL_FAULT_POINT("message.reserve.word");
  --control.count_room;
  lease_.own(1);
  publish({ring_.after(position, record.stride()), tail.count + 1}, 1);
  return {Result::kDone, 1, position};
}

// The owner alone moves the record out of kReserved, the holder of get_lock to kPassed in between.
void MessageWriter::finish(std::uint64_t position, std::uint64_t reserved, const RecordWord& now,
                           RecordState when_passed) {
  MessageControl& control = ring_.control();
  const auto lease = static_cast<std::uint64_t>(lease_.get());
  const RecordWord before{reserved, RecordState::kReserved, lease};
  std::uint64_t expected = before.pack();
  // SYNC POINT: releases the data to the readers' acquire of the word.
  if (!ring_.word(position).compare_exchange_strong(expected, now.pack(), std::memory_order_acq_rel)) {
    GRISTMILL_FAULT_POINT("message.commit.passed");
    RecordWord late = now;
    late.state = when_passed;
    if (when_passed == RecordState::kAbandoned) late.lease = RecordWord::kCounted;
    ring_.word(position).store(late.pack(), std::memory_order_release);
    if (when_passed == RecordState::kAbandoned) {
      control.undelivered.fetch_add(1, std::memory_order_relaxed);
    }
    GRISTMILL_FAULT_POINT("message.commit.late");
    // After the word, so that who sees the count finds the record; before the owner's next put, so
    // that who sees that one sees the count.
    control.late_events.fetch_add(1, std::memory_order_release);
  }
  GRISTMILL_FAULT_POINT("message.commit.done");
  lease_.own(-1);
}

void MessageWriter::commit(std::uint64_t position, std::uint64_t reserved, std::uint64_t length) {
  RecordWord now{length, RecordState::kReady, 0};
  const std::uint64_t before = RecordWord{reserved}.stride();
  if (now.stride() != before) {
    // What is not needed becomes a filler, seen only by those who see the shorter record.
    const RecordWord rest{before - now.stride() - sizeof(std::uint64_t), RecordState::kFiller, 0};
    ring_.word(ring_.after(position, now.stride())).store(rest.pack(), std::memory_order_relaxed);
    GRISTMILL_FAULT_POINT("message.commit.shortened");
  }
  finish(position, reserved, now, RecordState::kLate);
}

void MessageWriter::abandon(std::uint64_t position, std::uint64_t reserved) {
  finish(position, reserved, {reserved, RecordState::kAbandoned, 0}, RecordState::kAbandoned);
  ring_.control().skipped.fetch_add(1, std::memory_order_relaxed);
}

bool MessageWriter::may_put(std::uint64_t length, bool reserved, const MessageTurn* turn) const {
  const MessageControl& control = ring_.control();
  if (control.closed.load(std::memory_order_relaxed) != 0) return true;
  if (is_anothers(turn)) return false;
  const auto tail = MessageCursor::unpack(control.tail.load(std::memory_order_acquire));
  const std::uint64_t head = control.head.load(std::memory_order_acquire);
  const auto read = MessageCursor::unpack(control.read.load(std::memory_order_acquire));
  const std::uint64_t need =
      RecordWord{length}.stride() + (reserved || length >= kAlignedBytes ? filler_before(tail.position) : 0);
  const std::uint64_t waiting = ((tail.count - read.count) & MessageCursor::kCountMask) +
                                control.behind.load(std::memory_order_relaxed);
  return ring_.distance(head, tail.position) + need <= ring_.bytes() && waiting < count_limit_;
}

// Under the lock, so that no put is under way that has not seen it. Should the holder be stopped, its
// put may still come in: readers find it when they look again.
MessageStep MessageWriter::close(Deadline deadline) {
  MessageControl& control = ring_.control();
  MessageGuard guard(control.put_lock, deadline);
  if (guard.owner_died()) repair_locked();
  control.closed.store(1, std::memory_order_release);
  GRISTMILL_FAULT_POINT("message.close.stored");
  return {Result::kDone};
}

// The former holder died somewhere in append or reserve: what it wrote beyond the tail is nothing, and
// only the long count may have been left behind.
void MessageWriter::repair_locked() {
  MessageControl& control = ring_.control();
  const auto tail = MessageCursor::unpack(control.tail.load(std::memory_order_relaxed));
  const std::uint64_t puts = control.puts.load(std::memory_order_relaxed);
  const std::uint64_t missing = (tail.count - puts) & MessageCursor::kCountMask;
  control.puts.store(puts + missing, std::memory_order_relaxed);
  control.count_room = 0;
  GRISTMILL_FAULT_POINT("message.repair.puts");
}

}  // namespace gristmill
