#include "core/message_reader.h"

// What gives way when a queue that does not block is full.

namespace gristmill {
namespace {

using Result = MessageStep::Result;

}  // namespace

// Under the lock, one message after the other. drop(before, step): whether to look for more; sets step.result
// when something is amiss.
template <class Drop>
MessageStep MessageReader::drop_while(Deadline deadline, const Drop& drop) {
  MessageGuard guard(ring_.control().get_lock, deadline);
  if (!guard.held()) return MessageStep::of(guard.failure());
  if (guard.owner_died() && !repair_locked()) return {Result::kBroken};
  MessageStep step;
  View before;
  do {
    if (!load(&before)) return {Result::kBroken};
  } while (drop(before, step));
  return step;
}

void MessageReader::drop_at_cursor(const View& before, View& now, const RecordWord& record,
                                   MessageStep& step) {
  now.read = {ring_.after(now.read.position, record.stride()), now.read.count + 1};
  ring_.control().dropped.fetch_add(1, std::memory_order_relaxed);
  GRISTMILL_FAULT_POINT("message.drop.counted");
  ++step.count;
  step.freed += store_read(before, now, 1);
}

MessageStep MessageReader::drop_for(std::uint64_t need, std::uint64_t count_limit, Deadline deadline) {
  MessageControl& control = ring_.control();
  return drop_while(deadline, [&](const View& before, MessageStep& step) {
    const std::uint64_t used = ring_.distance(before.head, before.tail.position);
    const std::uint64_t waiting =
        ((before.tail.count - before.read.count) & MessageCursor::kCountMask) + before.behind;
    if (ring_.bytes() - used >= need && waiting < count_limit) return false;
    View now = before;
    RecordWord record;
    std::uint64_t position = 0;
    if (!find_late(now, &position, &record)) {
      step = {Result::kBroken};
      return false;
    }
    if (record.state == RecordState::kLate) {
      // The oldest of all.
      control.dropped.fetch_add(1, std::memory_order_relaxed);
      ring_.word(position).store(record.consumed().pack(), std::memory_order_release);
      GRISTMILL_FAULT_POINT("message.drop.late");
      if (now.behind > 0) control.behind.store(now.behind - 1, std::memory_order_relaxed);
      step.freed += advance_head(now);
      ++step.count;
      return true;
    }
    if (!skip(now, &record)) {
      step = {Result::kBroken};
      return false;
    }
    if (record.state == RecordState::kReady) {
      drop_at_cursor(before, now, record, step);
      return true;
    }
    if (now.read.position == before.read.position) {
      if (step.count == 0) step.result = Result::kNothing;
      return false;
    }
    step.freed += store_read(before, now, 0);
    return true;
  });
}

MessageStep MessageReader::drop_before(std::uint64_t position, Deadline deadline) {
  return drop_while(deadline, [&](const View& before, MessageStep& step) {
    View now = before;
    RecordWord record;
    if (!skip(now, &record)) {
      step = {Result::kBroken};
      return false;
    }
    // Only what lies between the cursor and the position: the cursor may be past it already.
    const std::uint64_t left = ring_.distance(now.read.position, position);
    if (record.state != RecordState::kReady || left == 0 ||
        left >= ring_.distance(now.read.position, now.tail.position)) {
      return false;
    }
    drop_at_cursor(before, now, record, step);
    return true;
  });
}

}  // namespace gristmill
