#include "core/message_reader.h"

#include <algorithm>
#include <cstring>

namespace gristmill {
namespace {

using Result = MessageStep::Result;

constexpr std::uint64_t kMaxRun = 4096;  // messages that one hold copies at most

// Where in a buffer a run from `position` on goes: aligned modulo 64 as it is in the ring.
std::size_t run_at(std::size_t used, std::uint64_t position) {
  const std::size_t phase = (position + 8) % 64;
  const std::size_t at = (used & ~std::size_t{63}) + phase;
  return at >= used ? at : at + 64;
}

}  // namespace

bool MessageReader::load(View* view) const {
  const MessageControl& control = ring_.control();
  // SYNC POINT: pairs with the writers' release; records before the tail are visible.
  view->tail = MessageCursor::unpack(control.tail.load(std::memory_order_acquire));
  view->read = MessageCursor::unpack(control.read.load(std::memory_order_relaxed));
  view->head = control.head.load(std::memory_order_relaxed);
  view->behind = control.behind.load(std::memory_order_relaxed);
  const std::uint64_t used = ring_.distance(view->head, view->tail.position);
  return ring_.valid(view->head) && ring_.valid(view->read.position) && ring_.valid(view->tail.position) &&
         used <= ring_.bytes() && ring_.distance(view->head, view->read.position) <= used;
}

bool MessageReader::skip(View& view, RecordWord* found) const {
  MessageCursor& read = view.read;
  while (read.position != view.tail.position) {
    const std::uint64_t left = ring_.distance(read.position, view.tail.position);
    RecordWord record = ring_.record(read.position, left);
    if (record.state == RecordState::kReserved) {
      RecordWord passed = record;
      passed.state = RecordState::kPassed;
      std::uint64_t expected = record.pack();
      if (!ring_.word(read.position)
               .compare_exchange_strong(expected, passed.pack(), std::memory_order_acq_rel)) {
        continue;  // committed or abandoned this instant
      }
      GRISTMILL_FAULT_POINT("message.get.passed");
      record = passed;
    }
    switch (record.state) {
      case RecordState::kReady:
        *found = record;
        return true;
      case RecordState::kPassed:
      case RecordState::kLate:
        ++view.behind;
        ++read.count;
        break;
      case RecordState::kAbandoned:
        view.undelivered += record.is_uncounted() ? 1 : 0;
        ++read.count;
        break;
      case RecordState::kFiller:
        break;
      default:
        return false;
    }
    read.position = ring_.after(read.position, record.stride());
  }
  *found = {};
  return true;
}

std::uint64_t MessageReader::store_read(const View& before, const View& now, std::uint64_t messages) {
  MessageControl& control = ring_.control();
  if (now.behind != before.behind) control.behind.store(now.behind, std::memory_order_relaxed);
  GRISTMILL_FAULT_POINT("message.get.behind");
  // From here on the messages are taken.
  control.read.store(now.read.pack(), std::memory_order_release);
  GRISTMILL_FAULT_POINT("message.get.read");
  const std::uint64_t moved = (now.read.count - before.read.count) & MessageCursor::kCountMask;
  control.passes.store(control.passes.load(std::memory_order_relaxed) + moved, std::memory_order_relaxed);
  if (now.undelivered != 0) control.undelivered.fetch_add(now.undelivered, std::memory_order_relaxed);
  // Nothing is out, and nothing was passed over: all of it is free.
  if (before.head == before.read.position && messages == moved) {
    // SYNC POINT: pairs with the writers' acquire; the copy out is done.
    control.head.store(now.read.position, std::memory_order_release);
    GRISTMILL_FAULT_POINT("message.get.head");
    return moved;
  }
  return advance_head(now);
}

std::uint64_t MessageReader::advance_head(const View& view) {
  std::uint64_t head = view.head;
  std::uint64_t freed = 0;
  for (std::uint64_t left = ring_.distance(head, view.read.position); left > 0;) {
    const RecordWord record = ring_.record(head, left);
    if (record.state != RecordState::kReady && record.state != RecordState::kAbandoned &&
        record.state != RecordState::kFiller) {
      break;
    }
    head = ring_.after(head, record.stride());
    left -= record.stride();
    ++freed;
  }
  // SYNC POINT: pairs with the writers' acquire; whoever consumed these records is done with them.
  if (freed > 0) ring_.control().head.store(head, std::memory_order_release);
  GRISTMILL_FAULT_POINT("message.get.advanced");
  return freed;
}

void MessageReader::prepare(const Want& want, std::uint64_t more, MessageBuffer& into) const {
  const MessageControl& control = ring_.control();
  const auto tail = MessageCursor::unpack(control.tail.load(std::memory_order_relaxed));
  const auto read = MessageCursor::unpack(control.read.load(std::memory_order_relaxed));
  const std::uint64_t waiting = std::uint64_t{1} + ((tail.count - read.count) & MessageCursor::kCountMask);
  const std::uint64_t messages = std::min({want.messages, waiting, kMaxRun});
  if (into.records_.capacity() < into.records_.size() + messages) {
    into.records_.reserve(std::max(into.records_.capacity() * 2, into.records_.size() + messages));
  }
  // Twice what so many take on average; the rest is for the next hold.
  const std::uint64_t ring = std::min(ring_.distance(read.position, tail.position), ring_.bytes());
  const std::uint64_t bytes = std::min({ring, ring / waiting * 2 * messages, want.bytes, kHoldBytes});
  into.grow(std::max(bytes + 128, more));
}

MessageStep MessageReader::copy_some(Want& want, MessageBuffer& into, Deadline deadline) {
  MessageControl& control = ring_.control();
  std::uint64_t position = 0;
  RecordWord record;
  MessageStep step;
  {
    MessageGuard guard(control.get_lock, deadline);
    if (!guard.held()) return MessageStep::of(guard.failure());
    GRISTMILL_FAULT_POINT("message.get.locked");
    if (guard.owner_died() && !repair_locked()) return {Result::kBroken};
    // Closed before the tail: nothing comes in after it.
    const bool closed = control.closed.load(std::memory_order_acquire) != 0;
    View before;
    if (!load(&before)) return {Result::kBroken};
    View now = before;
    // After the tail: of one producer's messages, a late one came before any that is seen now.
    if (may_be_late()) {
      const std::uint64_t events = control.late_events.load(std::memory_order_acquire);
      if (!find_late(now, &position, &record)) return {Result::kBroken};
      if (record.state == RecordState::kNone) control.late_seen.store(events, std::memory_order_relaxed);
    }
    if (record.state == RecordState::kLate) {
      step.left = true;
      if (!fits(want, record.length)) {
        step.result = Result::kNothing;
        return step;
      }
      const std::size_t needed = into.used_ + 64 + record.length;
      if (needed > into.capacity_ || into.records_.size() == into.records_.capacity()) {
        return {Result::kGrow, needed - into.used_};
      }
      const int lease = lease_.get();
      if (lease < 0) return {Result::kNoLease};
      lease_.own(1);
      record.state = RecordState::kCopying;
      record.lease = static_cast<std::uint64_t>(lease);
      ring_.word(position).store(record.pack(), std::memory_order_release);
      GRISTMILL_FAULT_POINT("message.get.late");
    } else {
      const std::uint64_t ready = ring_.distance(now.read.position, now.tail.position);
      want.ready = std::min(want.ready, ready);
      if (!skip(now, &record)) return {Result::kBroken};
      if (record.state == RecordState::kNone || want.ready == 0 || !fits(want, record.length)) {
        if (now.read.position != before.read.position) step.freed = store_read(before, now, 0);
        step.left = now.read.position != now.tail.position;
        step.result = closed && !step.left && now.behind == 0 ? Result::kClosed : Result::kNothing;
        return step;
      }
      position = now.read.position;
      const std::size_t at = run_at(into.used_, position);
      const bool large = record.length > MessageQueue::kLargeMessage;
      const std::uint64_t needed = large ? into.used_ + 64 + record.length : at + record.stride();
      const int lease = large ? lease_.get() : 0;
      if (needed > into.capacity_ || into.records_.size() == into.records_.capacity() || lease < 0) {
        if (now.read.position != before.read.position) step.freed = store_read(before, now, 0);
        step.result = lease < 0 ? Result::kNoLease : Result::kGrow;
        step.count = needed - into.used_;
        return step;
      }
      if (large) {
        lease_.own(1);
        record.state = RecordState::kCopying;
        record.lease = static_cast<std::uint64_t>(lease);
        ring_.word(position).store(record.pack(), std::memory_order_release);
        GRISTMILL_FAULT_POINT("message.get.copying");
        now.read = {ring_.after(position, record.stride()), now.read.count + 1};
        ++now.behind;
        step.freed = store_read(before, now, 0);
        want.ready -= std::min(want.ready, record.stride());
      } else {
        const std::uint64_t room = std::min<std::uint64_t>(into.capacity_ - at, kHoldBytes);
        const std::uint64_t most = std::min<std::uint64_t>(
            want.messages, std::min<std::uint64_t>(into.records_.capacity() - into.records_.size(), kMaxRun));
        const std::uint64_t skipped = now.read.count - before.read.count;
        std::uint64_t run = 0;  // bytes
        std::uint64_t got = 0;
        std::uint64_t left = ring_.distance(position, now.tail.position);
        std::uint64_t next = position;
        while (true) {
          into.records_.push_back({at + run + 8, record.length});
          count(want, record.length);
          run += record.stride();
          left -= record.stride();
          ++got;
          std::uint64_t filler = 0;
          if (got == most || left == 0 || run >= want.ready) break;
          next = ring_.after(next, record.stride());
          record = ring_.record(next, left);
          if (record.state == RecordState::kFiller && record.stride() < left) {
            filler = record.stride();
            next = ring_.after(next, filler);
            record = ring_.record(next, left - filler);
          }
          if (record.state != RecordState::kReady || record.length > MessageQueue::kLargeMessage ||
              run + filler + record.stride() > room || !fits(want, record.length)) {
            break;
          }
          run += filler;
          left -= filler;
        }
        std::memcpy(into.data_.get() + at, ring_.start(position), run);
        into.used_ = at + run;
        want.ready -= std::min(want.ready, run);
        GRISTMILL_FAULT_POINT("message.get.copied");
        now.read = {ring_.after(position, run), now.read.count + got};
        step.freed = store_read(before, now, skipped == 0 ? got : 0);
        step.count = got;
        step.left = left > 0;
        return step;
      }
    }
  }
  const MessageStep outside = copy_one_outside(position, record, want, into);
  step.count = outside.count;
  step.freed += outside.freed;
  step.left = outside.left;
  return step;
}

bool MessageReader::find_late(const View& view, std::uint64_t* position, RecordWord* found) const {
  std::uint64_t p = view.head;
  for (std::uint64_t left = ring_.distance(p, view.read.position); left > 0;) {
    const RecordWord record = ring_.record(p, left);
    if (record.state == RecordState::kNone) return false;
    if (record.state == RecordState::kLate) {
      *position = p;
      *found = record;
      return true;
    }
    p = ring_.after(p, record.stride());
    left -= record.stride();
  }
  return true;
}

// REQUIRES: the record is this process's, kCopying, and `into` has room for it.
MessageStep MessageReader::copy_one_outside(std::uint64_t position, const RecordWord& record, Want& want,
                                            MessageBuffer& into) {
  const std::size_t at = (into.used_ + 63) & ~std::size_t{63};
  copy_out_of_ring(into.data_.get() + at, ring_.data(position), record.length);
  GRISTMILL_FAULT_POINT("message.get.large");
  into.records_.push_back({at, record.length});
  into.used_ = at + record.length;
  count(want, record.length);
  // SYNC POINT: pairs with advance_head's acquire; the copy out is done. From here on it is taken.
  ring_.word(position).store(record.consumed().pack(), std::memory_order_release);
  GRISTMILL_FAULT_POINT("message.get.consumed");
  lease_.own(-1);
  MessageStep step = recover(true);
  step.count = 1;
  return step;
}

MessageStep MessageReader::take(Want& want, std::vector<std::span<const std::byte>>& into,
                                Deadline deadline) {
  MessageControl& control = ring_.control();
  const int lease = lease_.get();
  if (lease < 0) return {Result::kNoLease};
  MessageGuard guard(control.get_lock, deadline);
  if (!guard.held()) return MessageStep::of(guard.failure());
  GRISTMILL_FAULT_POINT("message.take.locked");
  if (guard.owner_died() && !repair_locked()) return {Result::kBroken};
  const bool closed = control.closed.load(std::memory_order_acquire) != 0;
  View before;
  if (!load(&before)) return {Result::kBroken};
  View now = before;
  MessageStep step;
  const auto mark = [&](std::uint64_t position, RecordWord record) {
    record.state = RecordState::kTaken;
    record.lease = static_cast<std::uint64_t>(lease);
    ring_.word(position).store(record.pack(), std::memory_order_release);
    GRISTMILL_FAULT_POINT("message.take.word");
    into.emplace_back(ring_.data(position), static_cast<std::size_t>(record.length));
    count(want, record.length);
    ++step.count;
  };
  const auto wants = [&](const RecordWord& record) {
    return want.messages > 0 && into.size() < into.capacity() && fits(want, record.length);
  };
  bool late_left = false;
  if (may_be_late()) {
    const std::uint64_t events = control.late_events.load(std::memory_order_acquire);
    bool all = true;
    if (!ring_.walk(now.head, now.read.position, [&](std::uint64_t position, const RecordWord& record) {
          if (record.state != RecordState::kLate) return;
          all = all && wants(record);
          if (!all) return;
          mark(position, record);
          if (now.behind > 0) --now.behind;
        })) {
      step.left = true;  // what is marked is taken all the same
    }
    if (all) control.late_seen.store(events, std::memory_order_relaxed);
    late_left = !all;
    step.left = step.left || late_left;
  }
  RecordWord record;
  // A late one that does not fit is not overtaken: its producer's next ones may fit.
  while (!late_left) {
    if (!skip(now, &record)) {
      if (step.count == 0) return {Result::kBroken};
      break;
    }
    if (record.state == RecordState::kNone || !wants(record)) break;
    mark(now.read.position, record);
    now.read = {ring_.after(now.read.position, record.stride()), now.read.count + 1};
  }
  lease_.own(static_cast<std::int64_t>(step.count));
  if (now.read.position != before.read.position || now.behind != before.behind) {
    step.freed = store_read(before, now, ~std::uint64_t{0});
  }
  step.left = step.left || now.read.position != now.tail.position;
  if (step.count == 0) {
    step.result = closed && !step.left && now.behind == 0 ? Result::kClosed : Result::kNothing;
  }
  return step;
}

void MessageReader::release(std::span<const std::span<const std::byte>> taken, MessageStep* step) {
  for (const std::span<const std::byte> message : taken) {
    // SYNC POINT: pairs with advance_head's acquire; this process is done with the bytes.
    std::byte* const start = const_cast<std::byte*>(message.data()) - sizeof(std::uint64_t);
    MessageRing::word_at(start).store(RecordWord{message.size(), RecordState::kReady, 0}.pack(),
                                      std::memory_order_release);
    GRISTMILL_FAULT_POINT("message.release.word");
  }
  lease_.own(-static_cast<std::int64_t>(taken.size()));
  *step = recover(true);
}

bool MessageReader::may_get() const {
  const MessageControl& control = ring_.control();
  const auto tail = MessageCursor::unpack(control.tail.load(std::memory_order_acquire));
  const auto read = MessageCursor::unpack(control.read.load(std::memory_order_relaxed));
  return tail.position != read.position || may_be_late() ||
         (control.closed.load(std::memory_order_relaxed) != 0 &&
          control.behind.load(std::memory_order_relaxed) == 0);
}

}  // namespace gristmill
