#pragma once

// The consumers' side of a message queue, and recovery: everything under get_lock.

#include <cstdint>
#include <span>
#include <vector>

#include "core/message_buffer.h"
#include "core/message_ring.h"
#include "core/message_writer.h"

namespace gristmill {

class MessageReader {
 public:
  // A hold of the lock copies about this much at most.
  static constexpr std::uint64_t kHoldBytes = std::uint64_t{128} << 10;

  MessageReader(const MessageRing& ring, MessageLease& lease) : ring_(ring), lease_(lease) {}

  // How much of what is ready a get still wants.
  struct Want {
    std::uint64_t messages = 0;
    std::uint64_t bytes = 0;  // of messages; the first may be longer
    bool first = true;        // nothing was taken yet
    // Ring bytes that were there when the get began: what comes in meanwhile is for the next one.
    std::uint64_t ready = ~std::uint64_t{0};
  };

  // Makes room in `into` for what is likely ready, and for `more` bytes at least. May throw
  // std::bad_alloc.
  void prepare(const Want& want, std::uint64_t more, MessageBuffer& into) const;
  // One run of small messages, copied under the lock, or one large one, copied outside it.
  // kNothing: none is ready. kClosed: and none will be.
  MessageStep copy_some(Want& want, MessageBuffer& into, Deadline deadline);
  // Likewise in place; all in one hold, up to the capacity of `into`.
  MessageStep take(Want& want, std::vector<std::span<const std::byte>>& into, Deadline deadline);
  void release(std::span<const std::span<const std::byte>> taken, MessageStep* step);

  // Whether one of the above may find something, or the queue closed; a hint.
  bool may_get() const;

  // Drops ready messages from the oldest on, until a message of `need` bytes and their padding has space.
  MessageStep drop_for(std::uint64_t need, std::uint64_t count_limit, Deadline deadline);
  // Drops ready messages that lie before `position`.
  MessageStep drop_before(std::uint64_t position, Deadline deadline);

  // Settles what dead processes own; step.count is how many records. Passes over what nobody will
  // deliver at the cursor, and moves the head. Waits for the lock for a moment at most.
  MessageStep recover(bool only_tidy);

  std::vector<MessageHolder> holders();

 private:
  // The cursors under the lock, checked against each other.
  struct View {
    MessageCursor read, tail;
    std::uint64_t head = 0;
    std::uint64_t behind = 0;
    std::uint64_t undelivered = 0;  // abandoned records passed over, in this hold
  };
  bool load(View* view) const;
  bool repair_locked();
  // Over what is not to be delivered, from view.read on; counts in view.behind what is passed over.
  // The first ready record, or state kNone at the tail. False: damaged.
  bool skip(View& view, RecordWord* found) const;
  // Stores the moved cursor, then the head as far as it may follow. Returns the records freed.
  std::uint64_t store_read(const View& before, const View& now, std::uint64_t messages);
  std::uint64_t advance_head(const View& view);
  void recount(const View& view);
  template <class Drop>
  MessageStep drop_while(Deadline deadline, const Drop& drop);
  void drop_at_cursor(const View& before, View& now, const RecordWord& record, MessageStep& step);
  bool find_late(const View& view, std::uint64_t* position, RecordWord* found) const;
  MessageStep copy_one_outside(std::uint64_t position, const RecordWord& record, Want& want,
                               MessageBuffer& into);
  bool may_be_late() const {
    const MessageControl& control = ring_.control();
    return control.late_events.load(std::memory_order_acquire) !=
           control.late_seen.load(std::memory_order_relaxed);
  }
  static bool fits(const Want& want, std::uint64_t length) { return want.first || length <= want.bytes; }
  static void count(Want& want, std::uint64_t length) {
    --want.messages;
    want.bytes -= length < want.bytes ? length : want.bytes;
    want.first = false;
  }

  const MessageRing& ring_;
  MessageLease& lease_;
};

}  // namespace gristmill
