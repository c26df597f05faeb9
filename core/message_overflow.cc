#include "core/message_reader.h"

// What gives way when a queue that does not block is full.

namespace gristmill {
namespace {
using Result = MessageStep::Result;
}  // namespace

MessageStep MessageReader::drop_for(std::uint64_t need, std::uint64_t count_limit, Deadline deadline) {
  MessageControl& control = ring_.control();
  MessageGuard guard(control.get_lock, deadline);
  if (!guard.held()) return MessageStep::of(guard.failure());
  if (guard.owner_died() && !repair_locked()) return {Result::kBroken};
  MessageStep step;
  while (true) {
    View before;
    if (!load(&before)) return {Result::kBroken};
    const std::uint64_t used = ring_.distance(before.head, before.tail.position);
    const std::uint64_t waiting =
        ((before.tail.count - before.read.count) & MessageCursor::kCountMask) + before.behind;
    if (ring_.bytes() - used >= need && waiting < count_limit) return step;
    View now = before;
    RecordWord record;
    std::uint64_t position = 0;
    if (!find_late(now, &position, &record)) return {Result::kBroken};
    if (record.state == RecordState::kLate) {
      // The oldest of all.
      control.dropped.fetch_add(1, std::memory_order_relaxed);
      ring_.word(position).store(record.consumed().pack(), std::memory_order_release);
      GRISTMILL_FAULT_POINT("message.drop.late");
      if (now.behind > 0) control.behind.store(now.behind - 1, std::memory_order_relaxed);
      step.freed += advance_head(now);
      ++step.count;
      continue;
    }
    if (!skip(now, &record)) return {Result::kBroken};
    const bool ready = record.state == RecordState::kReady;
    if (ready) now.read = {ring_.after(now.read.position, record.stride()), now.read.count + 1};
    if (now.read.position == before.read.position) {
      if (step.count == 0) step.result = Result::kNothing;
      return step;
    }
    if (ready) {
      control.dropped.fetch_add(1, std::memory_order_relaxed);
      GRISTMILL_FAULT_POINT("message.drop.counted");
      ++step.count;
    }
    step.freed += store_read(before, now, ready ? 1 : 0);
  }
}

MessageStep MessageReader::drop_before(std::uint64_t position, Deadline deadline) {
  MessageControl& control = ring_.control();
  MessageGuard guard(control.get_lock, deadline);
  if (!guard.held()) return MessageStep::of(guard.failure());
  if (guard.owner_died() && !repair_locked()) return {Result::kBroken};
  MessageStep step;
  while (true) {
    View before;
    if (!load(&before)) return {Result::kBroken};
    View now = before;
    RecordWord record;
    if (!skip(now, &record)) return {Result::kBroken};
    // Only what lies between the cursor and the position: the cursor may be past it already.
    const std::uint64_t left = ring_.distance(now.read.position, position);
    const bool older = record.state == RecordState::kReady && left != 0 &&
                       left < ring_.distance(now.read.position, now.tail.position);
    if (!older) return step;
    now.read = {ring_.after(now.read.position, record.stride()), now.read.count + 1};
    control.dropped.fetch_add(1, std::memory_order_relaxed);
    GRISTMILL_FAULT_POINT("message.drop.counted");
    ++step.count;
    step.freed += store_read(before, now, 1);
  }
}

}  // namespace gristmill
