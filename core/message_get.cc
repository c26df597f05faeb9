// Getting: steps of the reader, and what becomes of a get that found nothing.

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/fault_point.h"
#include "core/message_queue_impl.h"

namespace gristmill {
namespace {

using Result = MessageStep::Result;

MessageReader::Want wanted(const char* what, std::int64_t max, std::uint64_t max_bytes) {
  if (max < 1) {
    throw std::invalid_argument(std::string("a ") + what + " of " + std::to_string(max) +
                                " messages: expected at least 1");
  }
  MessageReader::Want want;
  want.messages = static_cast<std::uint64_t>(max);
  want.bytes = max_bytes;
  return want;
}

}  // namespace

MessageQueue::Outcome MessageQueue::Impl::settle_get(const MessageStep& step, Deadline deadline,
                                                     bool* waited) {
  if (step.result != Result::kNothing) return settle(step, deadline);
  MessageControl& control = ring.control();
  if (!*waited) control.get_waits.fetch_add(1, std::memory_order_relaxed);
  return wait(control.not_empty, !std::exchange(*waited, true), deadline, [&] { return reader.may_get(); });
}

void MessageQueue::Impl::get_done(std::uint64_t freed, bool left) {
  MessageControl& control = ring.control();
  if (freed > 0) {
    // Only whoever has the turn may go on, and it may be any of them.
    if (control.turns.turn.load(std::memory_order_relaxed) != 0) [[unlikely]] {
      control.not_full.notify_all();
    } else {
      control.not_full.notify(static_cast<std::int64_t>(freed));
    }
  }
  if (left && control.not_empty.may_sleep()) control.not_empty.notify(1);
  GRISTMILL_FAULT_POINT("message.get.notified");
}

MessageQueue::Outcome MessageQueue::get_many(std::int64_t max, std::uint64_t max_bytes, MessageBuffer& into,
                                             Deadline deadline) {
  MessageReader::Want want = wanted("get", max, max_bytes);
  into.clear();
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
    more = step.result == Result::kGrow ? step.count : 0;
    if (step.result == Result::kGrow) continue;
    if (step.result == Result::kDone) {
      if (want.ready == 0) break;
      continue;
    }
    if (into.size() > 0) break;
    want.ready = kNoLimit;
    if (step.result == Result::kNothing && freed > 0) impl_->get_done(std::exchange(freed, 0), false);
    outcome = impl_->settle_get(step, deadline, &waited);
  }
  impl_->get_done(freed, left);
  if (impl_->lost()) [[unlikely]] {
    into.clear();
    return Outcome::kBroken;
  }
  return outcome;
}

MessageQueue::TakeResult MessageQueue::take(std::int64_t max, std::uint64_t max_bytes, Deadline deadline) {
  MessageReader::Want want = wanted("take", max, max_bytes);
  TakeResult result;
  bool waited = false;
  while (result.outcome == Outcome::kOk) {
    const auto waiting = static_cast<std::uint64_t>(std::max<std::int64_t>(size(), 0)) + 1;
    // Whatever the counts say, no more than there is room for.
    const std::uint64_t most = capacity_bytes() / RecordWord{}.stride();
    result.batch.messages_.reserve(std::min({want.messages, waiting, most}));
    const MessageStep step = impl_->reader.take(want, result.batch.messages_, deadline);
    if (impl_->lost()) [[unlikely]] {
      result.batch.messages_.clear();
      result.outcome = Outcome::kBroken;
      break;
    }
    impl_->get_done(step.freed, step.result == Result::kDone && step.left);
    if (step.result == Result::kDone) {
      result.batch.queue_ = this;
      result.batch.owner_ = ProcessIdentity::self_packed();
      break;
    }
    result.outcome = impl_->settle_get(step, deadline, &waited);
  }
  return result;
}

MessageQueue::Outcome MessageQueue::wait_readable(Deadline deadline) {
  return impl_->wait_for(impl_->ring.control().not_empty, deadline, [&] { return impl_->reader.may_get(); });
}

}  // namespace gristmill
