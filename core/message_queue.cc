#include "core/message_queue.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <utility>

#include "core/fault_point.h"
#include "core/message_queue_impl.h"
#include "core/message_source.h"

namespace gristmill {
namespace {

using Bytes = std::span<const std::byte>;
using Result = MessageStep::Result;

std::int64_t milliseconds_now() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

std::int64_t MessageQueue::Impl::recover() {
  ring.control().recovered_at.store(milliseconds_now(), std::memory_order_relaxed);
  const MessageStep step = reader.recover(false);
  if (step.count > 0) {
    ring.control().not_full.notify_all();
    ring.control().not_empty.notify_all();
  } else {
    get_done(step.freed, step.left);
  }
  return static_cast<std::int64_t>(step.count);
}

// Among all who wait, one a slice; none while nothing is in the queue that a dead one could hold.
bool MessageQueue::Impl::recover_if_due() {
  MessageControl& control = ring.control();
  const auto tail = MessageCursor::unpack(control.tail.load(std::memory_order_acquire));
  if (control.head.load(std::memory_order_relaxed) == tail.position) return false;
  const std::int64_t now = milliseconds_now();
  std::int64_t before = control.recovered_at.load(std::memory_order_relaxed);
  if (before <= now && now - before < EventCount::kSlice.count()) return false;
  if (!control.recovered_at.compare_exchange_strong(before, now, std::memory_order_relaxed)) return false;
  return recover() > 0;
}

template <class Ready>
MessageQueue::Outcome MessageQueue::Impl::wait(EventCount& event, bool first, Deadline deadline,
                                               const Ready& ready) {
  // Whoever is waited for is most likely about to act: giving it the core for a moment saves a sleep
  // and a wake, and costs nothing when there is nobody to give it to but the idle.
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

MessageQueue::Outcome MessageQueue::Impl::settle(const MessageStep& step, std::uint64_t length, bool reserved,
                                                 Deadline deadline, bool* waited) {
  MessageControl& control = ring.control();
  switch (step.result) {
    case Result::kClosed:
      return Outcome::kClosed;
    case Result::kTimedOut:
      return deadline.passed() ? Outcome::kTimedOut : Outcome::kOk;
    case Result::kNoLease:
      // As many processes as there are leases hold something: each is soon done, or dead.
      if (recover() > 0) return Outcome::kOk;
      if (deadline.passed()) return Outcome::kTimedOut;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return Outcome::kOk;
    case Result::kNothing:
      break;
    default:
      return Outcome::kBroken;
  }
  if (layout.options.overflow != Overflow::kBlock) {
    // With what a filler may take: a little more than needed may be dropped.
    const std::uint64_t need = RecordWord{length}.stride() + MessageWriter::kFillerBytes;
    const MessageStep dropped = reader.drop_for(need, layout.count_limit, deadline);
    if (dropped.result == Result::kBroken) return Outcome::kBroken;
    if (dropped.result == Result::kDone) return Outcome::kOk;
  }
  const bool first = !std::exchange(*waited, true);
  if (first) control.put_waits.fetch_add(1, std::memory_order_relaxed);
  return wait(control.not_full, first, deadline, [&] { return writer.may_put(length, reserved); });
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

void MessageQueue::Impl::get_done(std::uint64_t freed, bool left) {
  MessageControl& control = ring.control();
  if (freed > 0) control.not_full.notify(static_cast<std::int64_t>(freed));
  if (left && control.not_empty.may_sleep()) control.not_empty.notify(1);
  GRISTMILL_FAULT_POINT("message.get.notified");
}

template <class Source>
MessageQueue::PutResult MessageQueue::Impl::put_all(const Source& source, Deadline deadline) {
  PutResult result;
  const std::uint64_t count = source.count();
  for (std::uint64_t i = 0; i < count; ++i) {
    if (source.length(i) > layout.largest_message) [[unlikely]] {
      return {Outcome::kTooLarge, 0, static_cast<std::int64_t>(i)};
    }
  }
  bool waited = false;
  for (std::uint64_t done = 0; done < count;) {
    const std::uint64_t length = source.length(done);
    const bool large = length > kLargeMessage;
    const MessageStep step = large ? writer.reserve(length, deadline) : writer.append(source, done, deadline);
    if (step.result == Result::kDone) [[likely]] {
      if (large) {
        source.copy(done, ring.data(step.position));
        GRISTMILL_FAULT_POINT("message.put.large");
        writer.commit(step.position, length, length);
      }
      done += step.count;
      result.put = static_cast<std::int64_t>(done);
      put_done(step.count, step.position, waited);
      continue;
    }
    result.outcome = settle(step, length, large, deadline, &waited);
    if (result.outcome != Outcome::kOk) return result;
  }
  return result;
}

MessageQueue::MessageQueue(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MessageQueue::~MessageQueue() = default;

std::unique_ptr<MessageQueue> MessageQueue::create(const std::string& name,
                                                   const MessageQueueOptions& options) {
  const MessageLayout layout = MessageLayout::of(options);
  Segment segment =
      Segment::create(name, SegmentKind::kMessageQueue, MessageLayout::hash(), layout.payload_bytes);
  layout.write(segment.payload());
  auto impl = std::make_unique<Impl>(std::move(segment), layout);
  impl->segment.mark_ready();
  return std::unique_ptr<MessageQueue>(new MessageQueue(std::move(impl)));
}

std::unique_ptr<MessageQueue> MessageQueue::attach(const std::string& name, Deadline deadline) {
  Segment segment = Segment::attach(name, SegmentKind::kMessageQueue, MessageLayout::hash(), deadline);
  try {
    const MessageLayout layout = MessageLayout::read(segment.payload(), segment.payload_bytes());
    auto impl = std::make_unique<Impl>(std::move(segment), layout);
    return std::unique_ptr<MessageQueue>(new MessageQueue(std::move(impl)));
  } catch (const std::invalid_argument& error) {
    throw SegmentError(SegmentError::Reason::kCorrupt,
                       "message queue '" + name + "' is corrupt: " + error.what());
  }
}

std::size_t MessageQueue::bytes_needed(const MessageQueueOptions& options) {
  return Segment::kHeaderBytes + MessageLayout::of(options).payload_bytes;
}

const MessageQueueOptions& MessageQueue::options() const { return impl_->layout.options; }
const std::string& MessageQueue::name() const { return impl_->segment.name(); }
std::uint64_t MessageQueue::capacity_bytes() const { return impl_->layout.ring_bytes; }
std::uint64_t MessageQueue::largest_message() const { return impl_->layout.largest_message; }

MessageQueue::PutResult MessageQueue::put(Bytes message, Deadline deadline) {
  return impl_->put_all(OneMessage{message}, deadline);
}

MessageQueue::PutResult MessageQueue::put_parts(std::span<const Bytes> parts, Deadline deadline) {
  std::uint64_t total = 0;
  for (const Bytes part : parts) {
    if (__builtin_add_overflow(total, part.size(), &total)) return {Outcome::kTooLarge, 0, 0};
  }
  return impl_->put_all(OneOfParts{parts, total}, deadline);
}

MessageQueue::PutResult MessageQueue::put_many(std::span<const Bytes> messages, Deadline deadline) {
  return impl_->put_all(ManyMessages{messages}, deadline);
}

MessageQueue::PutResult MessageQueue::put_packed(Bytes packed, std::span<const std::uint64_t> ends,
                                                 Deadline deadline) {
  std::uint64_t begin = 0;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    if (ends[i] < begin || ends[i] > packed.size()) {
      throw std::invalid_argument("put_packed: message " + std::to_string(i) + " ends at " +
                                  std::to_string(ends[i]) + ": expected " + std::to_string(begin) +
                                  ", where it begins, to " + std::to_string(packed.size()));
    }
    begin = ends[i];
  }
  return impl_->put_all(PackedMessages{packed.data(), ends}, deadline);
}

MessageQueue::ReserveResult MessageQueue::reserve(std::uint64_t length, Deadline deadline) {
  ReserveResult result;
  if (length > largest_message()) {
    result.outcome = Outcome::kTooLarge;
    return result;
  }
  bool waited = false;
  while (true) {
    const MessageStep step = impl_->writer.reserve(length, deadline);
    if (step.result == Result::kDone) {
      Reservation& reservation = result.reservation;
      reservation.queue_ = this;
      reservation.position_ = step.position;
      reservation.owner_ = ProcessIdentity::self_packed();
      reservation.bytes_ = {impl_->ring.data(step.position), static_cast<std::size_t>(length)};
      return result;
    }
    result.outcome = impl_->settle(step, length, true, deadline, &waited);
    if (result.outcome != Outcome::kOk) return result;
  }
}

MessageQueue::Outcome MessageQueue::get_many(std::int64_t max, std::uint64_t max_bytes, MessageBuffer& into,
                                             Deadline deadline) {
  if (max < 1) {
    throw std::invalid_argument("a get of " + std::to_string(max) + " messages: expected at least 1");
  }
  into.clear();
  MessageControl& control = impl_->ring.control();
  MessageReader::Want want;
  want.messages = static_cast<std::uint64_t>(max);
  want.bytes = max_bytes;
  std::uint64_t freed = 0;
  std::uint64_t more = 0;
  bool left = false;
  bool waited = false;
  Outcome outcome = Outcome::kOk;
  while (outcome == Outcome::kOk && want.messages > 0) {
    impl_->reader.prepare(want, more, into);
    const MessageStep step = impl_->reader.copy_some(want, into, deadline);
    freed += step.freed;
    left = step.left;
    more = 0;
    if (step.result == Result::kDone) {
      if (want.ready == 0) break;
      continue;
    }
    if (step.result == Result::kGrow) {
      more = step.count;
      continue;
    }
    if (into.size() > 0) break;
    want.ready = kNoLimit;
    switch (step.result) {
      case Result::kClosed:
        outcome = Outcome::kClosed;
        break;
      case Result::kTimedOut:
        if (deadline.passed()) outcome = Outcome::kTimedOut;
        break;
      case Result::kNoLease:
        if (impl_->recover() > 0) break;
        if (deadline.passed()) outcome = Outcome::kTimedOut;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        break;
      case Result::kNothing:
        if (freed > 0) control.not_full.notify(static_cast<std::int64_t>(std::exchange(freed, 0)));
        if (!waited) control.get_waits.fetch_add(1, std::memory_order_relaxed);
        outcome = impl_->wait(control.not_empty, !std::exchange(waited, true), deadline,
                              [&] { return impl_->reader.may_get(); });
        break;
      default:
        outcome = Outcome::kBroken;
        break;
    }
  }
  impl_->get_done(freed, left);
  return outcome;
}

MessageQueue::TakeResult MessageQueue::take(std::int64_t max, std::uint64_t max_bytes, Deadline deadline) {
  if (max < 1) {
    throw std::invalid_argument("a take of " + std::to_string(max) + " messages: expected at least 1");
  }
  TakeResult result;
  MessageControl& control = impl_->ring.control();
  MessageReader::Want want;
  want.messages = static_cast<std::uint64_t>(max);
  want.bytes = max_bytes;
  bool waited = false;
  while (true) {
    const auto waiting = static_cast<std::uint64_t>(std::max<std::int64_t>(size(), 0)) + 1;
    // Whatever the counts say, no more than there is room for.
    const std::uint64_t most = capacity_bytes() / RecordWord{}.stride();
    result.batch.messages_.reserve(std::min({want.messages, waiting, most}));
    const MessageStep step = impl_->reader.take(want, result.batch.messages_, deadline);
    if (step.result == Result::kDone) {
      result.batch.queue_ = this;
      result.batch.owner_ = ProcessIdentity::self_packed();
      impl_->get_done(step.freed, step.left);
      return result;
    }
    switch (step.result) {
      case Result::kClosed:
        result.outcome = Outcome::kClosed;
        break;
      case Result::kTimedOut:
        if (deadline.passed()) result.outcome = Outcome::kTimedOut;
        break;
      case Result::kNoLease:
        if (impl_->recover() > 0) break;
        if (deadline.passed()) result.outcome = Outcome::kTimedOut;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        break;
      case Result::kNothing:
        impl_->get_done(step.freed, false);
        if (!waited) control.get_waits.fetch_add(1, std::memory_order_relaxed);
        result.outcome = impl_->wait(control.not_empty, !std::exchange(waited, true), deadline,
                                     [&] { return impl_->reader.may_get(); });
        break;
      default:
        result.outcome = Outcome::kBroken;
        break;
    }
    if (result.outcome != Outcome::kOk) return result;
  }
}

MessageQueue::Outcome MessageQueue::wait_readable(Deadline deadline) {
  EventCount& event = impl_->ring.control().not_empty;
  const auto ready = [&] { return impl_->reader.may_get(); };
  for (bool first = true; !ready(); first = false) {
    const Outcome outcome = impl_->wait(event, first, deadline, ready);
    if (outcome != Outcome::kOk) return ready() ? Outcome::kOk : outcome;
  }
  event.notify(1);  // this one takes nothing yet
  return Outcome::kOk;
}

MessageQueue::Outcome MessageQueue::wait_writable(std::uint64_t length, Deadline deadline) {
  EventCount& event = impl_->ring.control().not_full;
  const auto ready = [&] { return impl_->writer.may_put(length, length > kLargeMessage); };
  for (bool first = true; !ready(); first = false) {
    const Outcome outcome = impl_->wait(event, first, deadline, ready);
    if (outcome != Outcome::kOk) return ready() ? Outcome::kOk : outcome;
  }
  event.notify(1);
  return Outcome::kOk;
}

void MessageQueue::close() {
  impl_->writer.close(Deadline::now());
  impl_->ring.control().not_full.notify_all();
  impl_->ring.control().not_empty.notify_all();
}

bool MessageQueue::closed() const {
  return impl_->ring.control().closed.load(std::memory_order_acquire) != 0;
}

std::int64_t MessageQueue::size() const {
  const MessageControl& control = impl_->ring.control();
  // The cursor first, so that it is never beyond the tail.
  const auto read = MessageCursor::unpack(control.read.load(std::memory_order_acquire));
  const std::uint64_t behind = control.behind.load(std::memory_order_relaxed);
  const auto tail = MessageCursor::unpack(control.tail.load(std::memory_order_acquire));
  return static_cast<std::int64_t>(((tail.count - read.count) & MessageCursor::kCountMask) + behind);
}

std::uint64_t MessageQueue::bytes_used() const {
  const MessageControl& control = impl_->ring.control();
  const std::uint64_t head = control.head.load(std::memory_order_acquire);
  const auto tail = MessageCursor::unpack(control.tail.load(std::memory_order_acquire));
  return std::min(impl_->ring.distance(head, tail.position), capacity_bytes());
}

MessageQueueStatistics MessageQueue::statistics() const {
  const MessageControl& control = impl_->ring.control();
  const auto less = [](std::uint64_t from, std::uint64_t n) { return from - std::min(from, n); };
  MessageQueueStatistics statistics;
  statistics.skipped = control.skipped.load(std::memory_order_relaxed);
  statistics.dropped = control.dropped.load(std::memory_order_relaxed);
  statistics.gets = less(control.passes.load(std::memory_order_relaxed),
                         control.behind.load(std::memory_order_relaxed) + statistics.dropped +
                             control.undelivered.load(std::memory_order_relaxed));
  statistics.puts = less(control.puts.load(std::memory_order_relaxed), statistics.skipped);
  statistics.put_waits = control.put_waits.load(std::memory_order_relaxed);
  statistics.get_waits = control.get_waits.load(std::memory_order_relaxed);
  statistics.owner_deaths = control.put_lock.owner_deaths() + control.get_lock.owner_deaths();
  return statistics;
}

std::vector<MessageHolder> MessageQueue::holders() const { return impl_->reader.holders(); }

void MessageQueue::return_on_signals(bool yes) {
  impl_->return_on_signals.store(yes, std::memory_order_relaxed);
}

std::int64_t MessageQueue::recover() { return impl_->recover(); }

void MessageQueue::unlink() noexcept { impl_->segment.unlink(); }

}  // namespace gristmill
