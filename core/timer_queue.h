#pragma once

// Deadlines that are moved far more often than they come: heartbeats, stalls, retries, intervals.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace gristmill {

// A set of timers, each with a deadline. One thread at a time; in private memory. It reads no clock and
// does no arithmetic on times: it compares those it is given, which are the monotonic clock's in this
// project and may be simulated ones. Precision is the clock's, a nanosecond.
//
// Costs, of n live timers:
//   restart to a later time       O(1): two words in one cache line, whatever n is
//   restart to an earlier time    O(1) on average, O(log n) at most
//   schedule                      O(1) for deadlines in rising order, O(log n) at most
//   cancel                        O(log n)
//   expire, nothing due           O(1): one comparison
//   expire, next_deadline         O(log n) for each timer that comes up: because it is due, or because
//                                 the time that it had before its restarts has come. next_deadline is
//                                 never more than O(n), also when all timers were restarted since
//   memory                        48 bytes for each of the most timers that ever lived at once, however
//                                 often they are restarted, cancelled or replaced; given back when the
//                                 last one is gone
//
// How: a heap of four children a node, whose keys may lag behind. A restart to a later time stores the
// deadline beside the key and leaves the heap alone; the timer is moved when its old time comes to the
// front. Thus a timer that is restarted every 10 s and would fire after 600 s is moved once in 60 restarts.
class TimerQueue {
 public:
  using Clock = std::chrono::steady_clock;
  using TimePoint = Clock::time_point;
  // Names one timer from schedule() until it expires or is cancelled. Never 0, and not given again before
  // four billion others were: a stale id is refused, also when another timer has taken its memory.
  using Id = std::uint64_t;

  // This deadline never comes.
  static constexpr TimePoint kNever = TimePoint::max();

  TimerQueue() = default;
  TimerQueue(const TimerQueue&) = delete;
  TimerQueue& operator=(const TimerQueue&) = delete;

  // A new timer. A deadline in the past is due at the next expire(). Throws std::bad_alloc, and
  // std::length_error at 2^32 - 1 live timers; nothing has changed then.
  Id schedule(TimePoint deadline);

  // Moves a timer to `deadline`, earlier or later; its place among equal deadlines stays. False, and
  // nothing done, when `id` names no live timer: it has expired, was cancelled, or never was. noexcept.
  [[nodiscard]] bool restart(Id id, TimePoint deadline) noexcept {
    Node* const node = find(id);
    if (node == nullptr) return false;
    node->deadline = deadline;
    if (deadline < node->key) move_forward(*node);
    return true;
  }

  // Ends a timer before its time. False as for restart().
  bool cancel(Id id) noexcept;

  // Ends the timers whose deadline is not after `now`, and returns them by deadline; equal deadlines in
  // the order in which they were scheduled. `now` may go back: no timer is lost or comes twice by it.
  // expire(kNever) ends all but those that never come.
  std::vector<Id> expire(TimePoint now) {
    if (heap_.empty() || heap_.front().key > now) return {};
    return take_due(now);
  }

  // The earliest deadline, exactly; kNever when no timer ever comes; nullopt when there is none.
  std::optional<TimePoint> next_deadline() noexcept;

  // nullopt as for restart().
  std::optional<TimePoint> deadline(Id id) const noexcept {
    const Node* const node = find(id);
    return node == nullptr ? std::nullopt : std::optional(node->deadline);
  }

  // Live timers.
  std::size_t size() const noexcept { return heap_.size(); }
  bool empty() const noexcept { return heap_.empty(); }

 private:
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

  // What a restart touches lies in one half of a cache line.
  struct alignas(32) Node {
    TimePoint deadline;
    TimePoint key;               // as in the heap; never after `deadline`
    std::uint64_t sequence = 0;  // of schedule(); 0: free. Its low half is the id's high half
    std::uint32_t position = 0;  // in heap_; of a free node: the next free one, or kNone
  };
  struct Entry {
    TimePoint key;
    std::uint32_t node;
  };

  static Id id_of(std::uint64_t sequence, std::uint32_t node) noexcept { return sequence << 32 | node; }
  const Node* find(Id id) const noexcept {
    const std::size_t index = id & kNone;
    // A free node's sequence is 0, which no id has.
    if (index >= nodes_.size() || id == 0 || nodes_[index].sequence << 32 != (id & ~std::uint64_t{kNone})) {
      return nullptr;
    }
    return &nodes_[index];
  }
  Node* find(Id id) noexcept { return const_cast<Node*>(static_cast<const TimerQueue*>(this)->find(id)); }

  bool before(const Entry& a, const Entry& b) const noexcept {
    return a.key != b.key ? a.key < b.key : nodes_[a.node].sequence < nodes_[b.node].sequence;
  }
  void place(std::size_t position, const Entry& entry) noexcept {
    heap_[position] = entry;
    nodes_[entry.node].position = static_cast<std::uint32_t>(position);
  }
  void sift_up(std::size_t position, Entry entry) noexcept;
  void sift_down(std::size_t position, Entry entry) noexcept;
  void move_forward(Node& node) noexcept;
  bool front_lags() const noexcept { return nodes_[heap_.front().node].deadline > heap_.front().key; }
  void catch_up_front() noexcept;
  void catch_up_all() noexcept;
  void remove(std::size_t position) noexcept;
  std::vector<Id> take_due(TimePoint now);
  std::uint32_t free_node();

  // Invariants: heap_ is ordered by before(); for each entry e at position p, nodes_[e.node] has the
  // same key and position p, and its deadline is not before the key. All other nodes are free, in a list.
  std::vector<Node> nodes_;
  std::vector<Entry> heap_;
  std::uint32_t first_free_ = kNone;
  std::uint64_t sequence_ = 0;  // of the timer scheduled last
};

}  // namespace gristmill
