// Messages in place: what becomes of reservations and taken batches.

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/message_queue_impl.h"

namespace gristmill {

MessageQueue::Reservation::Reservation(Reservation&& other) noexcept { *this = std::move(other); }

MessageQueue::Reservation& MessageQueue::Reservation::operator=(Reservation&& other) noexcept {
  if (this != &other) {
    abandon();
    queue_ = std::exchange(other.queue_, nullptr);
    position_ = other.position_;
    owner_ = other.owner_;
    bytes_ = std::exchange(other.bytes_, {});
  }
  return *this;
}

void MessageQueue::Reservation::commit(std::size_t length) {
  if (queue_ == nullptr) throw std::logic_error("commit() of a reservation that is empty or done");
  if (length > bytes_.size()) {
    throw std::invalid_argument("commit of " + std::to_string(length) + " bytes of " +
                                std::to_string(bytes_.size()) + " reserved");
  }
  MessageQueue& queue = *std::exchange(queue_, nullptr);
  const std::uint64_t reserved = std::exchange(bytes_, {}).size();
  if (owner_ != ProcessIdentity::self_packed()) return;
  queue.impl_->writer.commit(position_, reserved, length);
  queue.impl_->put_done(1, position_, false);
}

void MessageQueue::Reservation::abandon() {
  if (queue_ == nullptr) return;
  MessageQueue& queue = *std::exchange(queue_, nullptr);
  const std::uint64_t reserved = std::exchange(bytes_, {}).size();
  if (owner_ != ProcessIdentity::self_packed()) return;
  queue.impl_->writer.abandon(position_, reserved);
  const MessageStep step = queue.impl_->reader.recover(true);
  queue.impl_->get_done(step.freed, step.left);
  if (queue.closed()) queue.impl_->ring.control().not_empty.notify_all();
}

MessageQueue::Taken::Taken(Taken&& other) noexcept { *this = std::move(other); }

MessageQueue::Taken& MessageQueue::Taken::operator=(Taken&& other) noexcept {
  if (this != &other) {
    release();
    queue_ = std::exchange(other.queue_, nullptr);
    owner_ = other.owner_;
    released_ = std::exchange(other.released_, 0);
    messages_ = std::exchange(other.messages_, {});
  }
  return *this;
}

void MessageQueue::Taken::release_first(std::size_t count) {
  count = std::min(count, messages_.size());
  if (count <= released_) return;
  if (queue_ != nullptr && owner_ == ProcessIdentity::self_packed()) {
    const std::span<const std::span<const std::byte>> all(messages_);
    MessageStep step;
    queue_->impl_->reader.release(all.subspan(released_, count - released_), &step);
    queue_->impl_->get_done(step.freed, step.left);
  }
  released_ = count;
  if (count < messages_.size()) return;
  queue_ = nullptr;
  released_ = 0;
  messages_.clear();
}

}  // namespace gristmill
