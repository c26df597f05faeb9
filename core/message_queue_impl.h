#pragma once

// What message_queue.cc and message_place.cc know of a MessageQueue.

#include <atomic>
#include <cstdint>
#include <system_error>
#include <utility>

#include "core/message_layout.h"
#include "core/message_queue.h"
#include "core/message_reader.h"
#include "core/message_ring.h"
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
        reader(ring, lease) {}

  MessageRing map() const {
    try {
      return MessageRing(segment, layout);
    } catch (const std::system_error& error) {
      throw SegmentError(SegmentError::Reason::kSystem,
                         "message queue '" + segment.name() + "': " + error.what());
    }
  }

  template <class Source>
  PutResult put_all(const Source& source, Deadline deadline);
  // Waits for `ready`, a slice at most, and lets recovery have a look at its end. kOk: look again.
  // `first`: of the waits of one call.
  template <class Ready>
  Outcome wait(EventCount& event, bool first, Deadline deadline, const Ready& ready);
  // What a step of the writer that did not succeed means for the put. kOk: again.
  Outcome settle(const MessageStep& step, std::uint64_t length, bool reserved, Deadline deadline,
                 bool* waited);
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
  std::atomic<bool> return_on_signals{false};
};

}  // namespace gristmill
