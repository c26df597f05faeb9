// Putting: steps of the writer, and what becomes of a put that found no space.

#include <sched.h>

#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "core/fault_point.h"
#include "core/message_queue_impl.h"
#include "core/message_source.h"

namespace gristmill {
namespace {

using Bytes = std::span<const std::byte>;
using Result = MessageStep::Result;

}  // namespace

MessageQueue::Outcome MessageQueue::Impl::settle_put(const MessageStep& step, std::uint64_t length,
                                                     bool reserved, Deadline deadline, MessageTurn& turn,
                                                     bool* waited) {
  MessageControl& control = ring.control();
  if (step.result != Result::kNothing) return settle(step, deadline);
  if (layout.options.overflow != Overflow::kBlock) {
    // With what a filler may take: a little more than needed may be dropped.
    const std::uint64_t need = RecordWord{length}.stride() + MessageWriter::kFillerBytes;
    const MessageStep dropped = reader.drop_for(need, layout.count_limit, deadline);
    if (dropped.result == Result::kBroken) return Outcome::kBroken;
    if (dropped.result == Result::kDone) return Outcome::kOk;
  } else if (!deadline.is_now() && turn.wait(MessageTurn::now())) {
    control.not_full.notify_all();
  }
  const bool first = !std::exchange(*waited, true);
  if (!first) turn.forget_dead();
  if (first) control.put_waits.fetch_add(1, std::memory_order_relaxed);
  return wait(control.not_full, first, deadline, [&] { return writer.may_put(length, reserved, &turn); });
}

void MessageQueue::Impl::put_done(std::uint64_t messages, std::uint64_t position, bool waited) {
  MessageControl& control = ring.control();
  control.not_empty.notify(static_cast<std::int64_t>(messages));
  GRISTMILL_FAULT_POINT("message.put.notified");
  if (layout.options.overflow == Overflow::kLatest) {
    get_done(reader.drop_before(position, Deadline::now()).freed, false);
  }
  // Others may find space as well.
  if (waited || control.not_full.may_sleep()) control.not_full.notify(1);
}

void MessageQueue::Impl::end_turn(MessageTurn& turn) {
  if (turn.done()) ring.control().not_full.notify_all();
}

template <class Source>
MessageQueue::PutResult MessageQueue::Impl::put_all(const Source& source, Deadline deadline,
                                                    MessageTurn* given) {
  PutResult result;
  const std::uint64_t count = source.count();
  for (std::uint64_t i = 0; i < count; ++i) {
    if (source.length(i) > layout.largest_message) [[unlikely]] {
      return {Outcome::kTooLarge, 0, static_cast<std::int64_t>(i)};
    }
  }
  bool waited = false;
  std::optional<MessageTurn> own;  // made by the first wait
  MessageTurn* turn = given;
  for (std::uint64_t done = 0; done < count;) {
    const std::uint64_t length = source.length(done);
    const bool large = length > kLargeMessage;
    if (lost()) [[unlikely]] {
      result.outcome = Outcome::kBroken;
      break;
    }
    const MessageStep step =
        large ? writer.reserve(length, deadline, turn) : writer.append(source, done, deadline, turn);
    if (step.result == Result::kDone) [[likely]] {
      // What is left waits anew, behind others.
      if (turn != nullptr) end_turn(*turn);
      if (large) {
        MessageRing::touch(ring.start(step.position), length);
        source.copy(done, ring.data(step.position), [&](std::byte* to, const std::byte* from, std::size_t n) {
          copy_into_ring(to, from, n, ring.is_cached());
        });
        GRISTMILL_FAULT_POINT("message.put.large");
        writer.commit(step.position, length, length);
      }
      done += step.count;
      if (lost()) [[unlikely]] {
        result.outcome = Outcome::kBroken;
        break;
      }
      result.put = static_cast<std::int64_t>(done);
      put_done(step.count, step.position, waited);
      continue;
    }
    if (turn == nullptr) turn = &own.emplace(ring.control().turns);
    result.outcome = settle_put(step, length, large, deadline, *turn, &waited);
    if (result.outcome != Outcome::kOk) break;
  }
  if (own) end_turn(*own);
  return result;
}

MessageQueue::PutResult MessageQueue::put(Bytes message, Deadline deadline, MessageTurn* turn) {
  return impl_->put_all(OneMessage{message}, deadline, turn);
}

MessageQueue::PutResult MessageQueue::put_parts(std::span<const Bytes> parts, Deadline deadline,
                                                MessageTurn* turn) {
  std::uint64_t total = 0;
  for (const Bytes part : parts) {
    if (__builtin_add_overflow(total, part.size(), &total)) return {Outcome::kTooLarge, 0, 0};
  }
  return impl_->put_all(OneOfParts{parts, total}, deadline, turn);
}

MessageQueue::PutResult MessageQueue::put_many(std::span<const Bytes> messages, Deadline deadline,
                                               MessageTurn* turn) {
  return impl_->put_all(ManyMessages{messages}, deadline, turn);
}

MessageQueue::PutResult MessageQueue::put_packed(Bytes packed, std::span<const std::uint64_t> ends,
                                                 Deadline deadline, MessageTurn* turn) {
  std::uint64_t begin = 0;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    if (ends[i] < begin || ends[i] > packed.size()) {
      throw std::invalid_argument("put_packed: message " + std::to_string(i) + " ends at " +
                                  std::to_string(ends[i]) + ": expected " + std::to_string(begin) +
                                  ", where it begins, to " + std::to_string(packed.size()));
    }
    begin = ends[i];
  }
  return impl_->put_all(PackedMessages{packed.data(), ends}, deadline, turn);
}

MessageQueue::ReserveResult MessageQueue::reserve(std::uint64_t length, Deadline deadline,
                                                  MessageTurn* given) {
  ReserveResult result;
  if (length > largest_message()) {
    result.outcome = Outcome::kTooLarge;
    return result;
  }
  bool waited = false;
  std::optional<MessageTurn> own;
  MessageTurn* turn = given;
  while (result.outcome == Outcome::kOk) {
    const MessageStep step = impl_->writer.reserve(length, deadline, turn);
    if (impl_->lost()) [[unlikely]] {
      result.outcome = Outcome::kBroken;
      break;
    }
    if (step.result == Result::kDone) {
      Reservation& reservation = result.reservation;
      reservation.queue_ = this;
      reservation.position_ = step.position;
      reservation.owner_ = ProcessIdentity::self_packed();
      reservation.bytes_ = {impl_->ring.data(step.position), static_cast<std::size_t>(length)};
      MessageRing::touch(impl_->ring.start(step.position), length);
      break;
    }
    if (turn == nullptr) turn = &own.emplace(impl_->ring.control().turns);
    result.outcome = impl_->settle_put(step, length, true, deadline, *turn, &waited);
  }
  // One that was given goes on with the next try, unless this one was in.
  if (turn != nullptr && (result.reservation || own)) impl_->end_turn(*turn);
  return result;
}

MessageTurn MessageQueue::turn() const { return MessageTurn(impl_->ring.control().turns); }

MessageQueue::Outcome MessageQueue::wait_writable(std::uint64_t length, Deadline deadline) {
  return impl_->wait_for(impl_->ring.control().not_full, deadline,
                         [&] { return impl_->writer.may_put(length, length > kLargeMessage, nullptr); });
}

}  // namespace gristmill
