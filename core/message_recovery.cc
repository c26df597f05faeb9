#include <algorithm>

#include "core/message_reader.h"

// What is done about the dead, and who keeps space.

namespace gristmill {
namespace {
using Result = MessageStep::Result;
}  // namespace

void MessageReader::recount(const View& view) {
  std::uint64_t behind = 0;
  ring_.walk(view.head, view.read.position, [&](std::uint64_t, const RecordWord& record) {
    behind += record.state == RecordState::kPassed || record.state == RecordState::kLate ||
                      record.state == RecordState::kCopying
                  ? 1
                  : 0;
  });
  ring_.control().behind.store(behind, std::memory_order_relaxed);
  GRISTMILL_FAULT_POINT("message.get.recounted");
}

// The former holder died. Records from the cursor on may bear its marks: they are not taken.
bool MessageReader::repair_locked() {
  MessageControl& control = ring_.control();
  View view;
  if (!load(&view)) return false;
  ring_.walk(view.read.position, view.tail.position, [&](std::uint64_t position, RecordWord record) {
    if (record.state == RecordState::kPassed) {
      RecordWord reserved = record;
      reserved.state = RecordState::kReserved;
      std::uint64_t expected = record.pack();
      if (ring_.word(position).compare_exchange_strong(expected, reserved.pack(),
                                                       std::memory_order_acq_rel)) {
        return;
      }
      record = RecordWord::unpack(expected);  // finished meanwhile: late, or abandoned
    }
    if (record.state == RecordState::kTaken || record.state == RecordState::kCopying ||
        record.state == RecordState::kLate) {
      ring_.word(position).store(record.consumed().pack(), std::memory_order_release);
    }
    GRISTMILL_FAULT_POINT("message.repair.word");
  });
  const std::uint64_t passes = control.passes.load(std::memory_order_relaxed);
  control.passes.store(passes + ((view.read.count - passes) & MessageCursor::kCountMask),
                       std::memory_order_relaxed);
  recount(view);
  control.late_events.fetch_add(1, std::memory_order_release);  // somebody looks for late ones
  advance_head(view);
  return true;
}

MessageStep MessageReader::recover(bool only_tidy) {
  MessageControl& control = ring_.control();
  const LeaseTable& leases = ring_.leases();
  std::vector<std::uint64_t> dead;  // by lease: who is proved dead, before the words are looked at
  bool any = false;
  if (!only_tidy) {
    dead.resize(static_cast<std::size_t>(leases.count()));
    for (int i = 0; i < leases.count(); ++i) {
      const std::uint64_t owner = leases[i].owner.load(std::memory_order_acquire);
      if (owner == 0 || !ProcessIdentity::unpack(owner).proved_dead()) continue;
      dead[static_cast<std::size_t>(i)] = owner;
      any = true;
    }
  }
  MessageGuard guard(control.get_lock, Deadline::now());
  if (!guard.held()) return MessageStep::of(guard.failure());
  if (guard.owner_died() && !repair_locked()) return {Result::kBroken};
  View before;
  if (!load(&before)) return {Result::kBroken};
  MessageStep step;
  if (any) {
    bool late = false;
    const auto settle = [&](std::uint64_t position, const RecordWord& record) {
      if (record.lease >= dead.size() || dead[record.lease] == 0) return;
      RecordWord now = record;
      now.lease = 0;
      switch (record.state) {
        case RecordState::kReserved:
        case RecordState::kPassed:
          now.state = RecordState::kAbandoned;
          break;
        case RecordState::kCopying:
          now.state = RecordState::kLate;
          late = true;
          break;
        case RecordState::kTaken:
          now.state = RecordState::kReady;
          break;
        default:
          return;
      }
      std::uint64_t expected = record.pack();
      if (!ring_.word(position).compare_exchange_strong(expected, now.pack(), std::memory_order_acq_rel)) {
        return;
      }
      GRISTMILL_FAULT_POINT("message.recover.word");
      if (record.state == RecordState::kPassed) {
        control.undelivered.fetch_add(1, std::memory_order_relaxed);
      }
      if (now.state == RecordState::kAbandoned) control.skipped.fetch_add(1, std::memory_order_relaxed);
      ++step.count;
    };
    ring_.walk(before.head, before.tail.position, settle);
    // Also for the one that a dead producer committed late and did not live to tell.
    control.late_events.fetch_add(1, std::memory_order_release);
    GRISTMILL_FAULT_POINT("message.recover.settled");
    for (int i = 0; i < leases.count(); ++i) {
      std::uint64_t owner = dead[static_cast<std::size_t>(i)];
      if (owner == 0) continue;
      leases[i].owner.compare_exchange_strong(owner, 0, std::memory_order_acq_rel);
      GRISTMILL_FAULT_POINT("message.recover.freed");
    }
  }
  // What nobody will deliver is not waited for by a get. Reservations stay where they are.
  View now = before;
  while (now.read.position != now.tail.position) {
    const RecordWord record =
        ring_.record(now.read.position, ring_.distance(now.read.position, now.tail.position));
    if (record.state != RecordState::kAbandoned && record.state != RecordState::kFiller) break;
    now.undelivered += record.is_uncounted() ? 1 : 0;
    now.read = {ring_.after(now.read.position, record.stride()),
                now.read.count + (record.state == RecordState::kAbandoned ? 1 : 0)};
  }
  if (now.read.position != before.read.position) {
    step.freed = store_read(before, now, ~std::uint64_t{0});
  } else if (before.head != before.read.position) {
    step.freed = advance_head(before);
  }
  if (before.behind != 0) {
    now.head = control.head.load(std::memory_order_relaxed);
    recount(now);
  }
  step.left = now.read.position != now.tail.position || may_be_late();
  return step;
}

std::vector<MessageHolder> MessageReader::holders() {
  std::vector<MessageHolder> holders;
  MessageGuard guard(ring_.control().get_lock, Deadline::now());
  View view;
  if (!guard.held() || (guard.owner_died() && !repair_locked()) || !load(&view)) return holders;
  ring_.walk(view.head, view.tail.position, [&](std::uint64_t, const RecordWord& record) {
    const bool taken = record.state == RecordState::kTaken || record.state == RecordState::kCopying;
    const bool reserved = record.state == RecordState::kReserved || record.state == RecordState::kPassed;
    if ((!taken && !reserved) || record.lease >= MessageLayout::kLeases) return;
    const std::uint64_t owner =
        ring_.leases()[static_cast<int>(record.lease)].owner.load(std::memory_order_acquire);
    const std::int64_t pid = ProcessIdentity::unpack(owner).pid;
    auto holder = std::find_if(holders.begin(), holders.end(), [&](const auto& h) { return h.pid == pid; });
    if (holder == holders.end()) holder = holders.insert(holders.end(), MessageHolder{pid, 0, 0, 0});
    holder->taken += taken ? 1 : 0;
    holder->reserved += reserved ? 1 : 0;
    holder->bytes += record.stride();
  });
  return holders;
}

}  // namespace gristmill
