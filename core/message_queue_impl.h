#pragma once

// What a MessageQueue is made of, and how it waits: message_queue.cc, message_put.cc, message_get.cc and
// message_place.cc.

#include <sched.h>

#include <atomic>
#include <cstdint>
#include <system_error>
#include <utility>

#include "core/message_layout.h"
#include "core/message_queue.h"
#include "core/message_reader.h"
#include "core/message_ring.h"
#include "core/message_turn.h"
#include "core/message_writer.h"
#include "core/segment.h"

namespace gristmill {

struct MessageQueue::Impl {
  Impl(Segment&& owned, const MessageLayout& checked)
      : segment(std::move(owned)),
        layout(checked),
        ring(map()),
        lease(ring.leases()),
        writer(ring, layout, lease),
        reader(ring, lease),
        lost_flag(segment.lost_flag()) {}

  MessageRing map() const {
    try {
      return MessageRing(segment, layout);
    } catch (const std::system_error& error) {
      throw SegmentError(SegmentError::Reason::kSystem,
                         "message queue '" + segment.name() + "': " + error.what());
    }
  }

  template <class Source>
  PutResult put_all(const Source& source, Deadline deadline, MessageTurn* given);
  // Waits for `ready`, a slice at most, and lets recovery have a look at its end. kOk: look again.
  // `first`: of the waits of one call.
  template <class Ready>
  Outcome wait(EventCount& event, bool first, Deadline deadline, const Ready& ready);
  // Waits for `ready`, and takes nothing.
  template <class Ready>
  Outcome wait_for(EventCount& event, Deadline deadline, const Ready& ready);
  // What a step that did not succeed means for the call. kOk: again.
  Outcome settle_put(const MessageStep& step, std::uint64_t length, bool reserved, Deadline deadline,
                     MessageTurn& turn, bool* waited);
  Outcome settle_get(const MessageStep& step, Deadline deadline, bool* waited);
  Outcome settle(const MessageStep& step, Deadline deadline);  // none of full or empty
  // Ends a put that waited.
  void end_turn(MessageTurn& turn);
  bool recover_if_due();
  std::int64_t recover();
  // After messages were put, or taken: who may go on now.
  void put_done(std::uint64_t messages, std::uint64_t position, bool waited);
  void get_done(std::uint64_t freed, bool left);

  Segment segment;
  MessageLayout layout;
  MessageRing ring;
  MessageLease lease;
  MessageWriter writer;
  MessageReader reader;
  // Looked at for every message, hence at hand.
  std::atomic<bool>* lost_flag;
  bool lost() const { return lost_flag->load(std::memory_order_relaxed); }
  std::atomic<bool> return_on_signals{false};
};

template <class Ready>
MessageQueue::Outcome MessageQueue::Impl::wait(EventCount& event, bool first, Deadline deadline,
                                               const Ready& ready) {
  // Whoever is waited for is most likely about to act: giving it the core for a moment saves a sleep
  // and a wake, and costs nothing when there is nobody to give it to but the idle.
  if (lost()) return Outcome::kBroken;
  constexpr int kYields = 20;
  for (int i = 0; i < kYields && first && !deadline.is_now(); ++i) {
    if (ready()) return Outcome::kOk;
    ::sched_yield();
  }
  const std::uint32_t key = event.prepare();
  GRISTMILL_FAULT_POINT("message.wait.prepared");
  if (ready()) return Outcome::kOk;
  if (deadline.passed()) {
    // What a dead process left may be all that is in the way.
    return recover_if_due() ? Outcome::kOk : Outcome::kTimedOut;
  }
  const EventCount::Woken woken = event.wait(key, deadline);
  GRISTMILL_FAULT_POINT("message.wait.woken");
  if (woken == EventCount::Woken::kInterrupted && return_on_signals.load(std::memory_order_relaxed)) {
    return Outcome::kInterrupted;
  }
  if (woken == EventCount::Woken::kTimedOut) {
    if (ready()) {
      event.forget_woken();
    } else {
      recover_if_due();
    }
  }
  return Outcome::kOk;
}

template <class Ready>
MessageQueue::Outcome MessageQueue::Impl::wait_for(EventCount& event, Deadline deadline, const Ready& ready) {
  for (bool first = true; !ready(); first = false) {
    const Outcome outcome = wait(event, first, deadline, ready);
    if (outcome != Outcome::kOk) return ready() ? Outcome::kOk : outcome;
  }
  event.notify(1);  // this one takes nothing yet
  return Outcome::kOk;
}

}  // namespace gristmill
