#include "core/message_queue.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <utility>

#include "core/message_queue_impl.h"

namespace gristmill {

std::int64_t MessageQueue::Impl::recover() {
  ring.control().recovered_at.store(MessageTurn::now(), std::memory_order_relaxed);
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
  const std::int64_t now = MessageTurn::now();
  std::int64_t before = control.recovered_at.load(std::memory_order_relaxed);
  // Unsigned: a time that is damaged, or to come, is long ago.
  const std::uint64_t since = static_cast<std::uint64_t>(now) - static_cast<std::uint64_t>(before);
  if (since < static_cast<std::uint64_t>(EventCount::kSlice.count())) return false;
  if (!control.recovered_at.compare_exchange_strong(before, now, std::memory_order_relaxed)) return false;
  return recover() > 0;
}

MessageQueue::Outcome MessageQueue::Impl::settle(const MessageStep& step, Deadline deadline) {
  using Result = MessageStep::Result;
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
    default:
      return Outcome::kBroken;
  }
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
