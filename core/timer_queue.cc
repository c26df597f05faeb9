#include "core/timer_queue.h"

#include <algorithm>
#include <stdexcept>

namespace gristmill {

namespace {

constexpr std::size_t kChildren = 4;
// Below this, memory is kept when the last timer goes: a queue that holds one now and then would
// allocate each time.
constexpr std::size_t kKept = 1024;

}  // namespace

TimerQueue::Id TimerQueue::schedule(TimePoint deadline) {
  const std::uint32_t index = free_node();
  heap_.emplace_back();  // may throw: the node is still in the list of free ones
  Node& node = nodes_[index];
  first_free_ = node.position;
  ++sequence_;
  if ((sequence_ & kNone) == 0) ++sequence_;
  node.deadline = node.key = deadline;
  node.sequence = sequence_;
  sift_up(heap_.size() - 1, {deadline, index});
  return id_of(sequence_, index);
}

// The first of the list of free nodes, made when there is none.
std::uint32_t TimerQueue::free_node() {
  if (first_free_ == kNone) {
    if (nodes_.size() >= kNone) throw std::length_error("timer queue: 4 294 967 295 timers are alive");
    nodes_.emplace_back().position = kNone;
    first_free_ = static_cast<std::uint32_t>(nodes_.size() - 1);
  }
  return first_free_;
}

bool TimerQueue::cancel(Id id) noexcept {
  const Node* const node = find(id);
  if (node == nullptr) return false;
  remove(node->position);
  return true;
}

std::optional<TimerQueue::TimePoint> TimerQueue::next_deadline() noexcept {
  if (heap_.empty()) return std::nullopt;
  // Many laggards at once are cheaper to put in order together.
  const std::size_t most = heap_.size() / 8 + 16;
  for (std::size_t moved = 0; front_lags(); ++moved) {
    if (moved < most) {
      catch_up_front();
    } else {
      catch_up_all();
    }
  }
  return heap_.front().key;
}

std::vector<TimerQueue::Id> TimerQueue::take_due(TimePoint now) {
  now = std::min(now, kNever - TimePoint::duration(1));
  std::vector<Id> due;
  while (!heap_.empty() && heap_.front().key <= now) {
    if (front_lags()) {
      catch_up_front();
      continue;
    }
    const std::uint32_t index = heap_.front().node;
    due.push_back(id_of(nodes_[index].sequence, index));
    remove(0);
  }
  return due;
}

void TimerQueue::move_forward(Node& node) noexcept {
  node.key = node.deadline;
  const auto index = static_cast<std::uint32_t>(&node - nodes_.data());
  sift_up(node.position, {node.key, index});
}

void TimerQueue::catch_up_front() noexcept {
  const std::uint32_t index = heap_.front().node;
  Node& node = nodes_[index];
  node.key = node.deadline;
  sift_down(0, {node.key, index});
}

void TimerQueue::catch_up_all() noexcept {
  for (Entry& entry : heap_) {
    Node& node = nodes_[entry.node];
    entry.key = node.key = node.deadline;
  }
  for (std::size_t position = (heap_.size() + kChildren - 2) / kChildren; position-- > 0;) {
    sift_down(position, heap_[position]);
  }
}

// Moves what is at `position` towards the front, from where `entry` belongs no further.
void TimerQueue::sift_up(std::size_t position, Entry entry) noexcept {
  while (position > 0) {
    const std::size_t parent = (position - 1) / kChildren;
    if (!before(entry, heap_[parent])) break;
    place(position, heap_[parent]);
    position = parent;
  }
  place(position, entry);
}

void TimerQueue::sift_down(std::size_t position, Entry entry) noexcept {
  const std::size_t size = heap_.size();
  while (true) {
    const std::size_t first = position * kChildren + 1;
    if (first >= size) break;
    const std::size_t end = std::min(first + kChildren, size);
    std::size_t least = first;
    for (std::size_t child = first + 1; child < end; ++child) {
      if (before(heap_[child], heap_[least])) least = child;
    }
    if (!before(heap_[least], entry)) break;
    place(position, heap_[least]);
    position = least;
  }
  place(position, entry);
}

// Ends the timer at `position`; the last one fills the gap.
void TimerQueue::remove(std::size_t position) noexcept {
  const std::uint32_t index = heap_[position].node;
  Node& node = nodes_[index];
  node.sequence = 0;
  node.position = first_free_;
  first_free_ = index;

  const Entry last = heap_.back();
  heap_.pop_back();
  if (position < heap_.size()) {
    if (position > 0 && before(last, heap_[(position - 1) / kChildren])) {
      sift_up(position, last);
    } else {
      sift_down(position, last);
    }
  }
  if (heap_.empty() && nodes_.size() > kKept) {
    nodes_ = std::vector<Node>();
    heap_ = std::vector<Entry>();
    first_free_ = kNone;
  }
}

}  // namespace gristmill
