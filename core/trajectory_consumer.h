#pragma once

// The consumer's side of a trajectory queue: who it is, how far it has got, what is out.

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "core/process_identity.h"
#include "core/trajectory_places.h"

namespace gristmill {

// One thread at a time may call become(), poll() and take(); any thread release().
class TrajectoryConsumer {
 public:
  explicit TrajectoryConsumer(const TrajectoryPlaces& places);

  enum class Poll { kReady, kWaiting, kDrained, kBroken };

  // Makes this object the queue's consumer, starting at the oldest place not released. False when
  // the shared state is damaged. Throws std::logic_error when a living process, or another object of
  // this one, is the consumer.
  bool become();
  // Whether `n` consecutive trajectories lie ready; after close(), the last ones may be fewer.
  // *count is how many, when kReady. Passes abandoned places of a closed queue over.
  Poll poll(std::uint64_t n, std::uint64_t* count);
  std::uint64_t cursor() const { return cursor_; }
  // Moves the cursor past `count` ready places; *begin is the first. They stay until released. False: more
  // would be out than there are places, so the shared state is damaged.
  bool take(std::uint64_t count, std::uint64_t* begin);
  // Frees what take() returned; in any order, the head moves when the oldest is released. Nothing
  // happens in a forked child of the consumer.
  void release(std::uint64_t begin, std::uint64_t count);
  // Lets another become the consumer.
  void resign() noexcept;

 private:
  bool skip_abandoned();
  bool move_cursor_locked(std::uint64_t count, bool released);
  void advance_head_locked();
  std::uint64_t& taken(std::uint64_t position) { return taken_[position % taken_.size()]; }

  TrajectoryPlaces places_;
  std::atomic<std::uint64_t> self_{0};  // packed identity of the process that became the consumer here
  std::uint64_t scanned_ = 0;           // places from cursor_ up to here are ready
  std::mutex mutex_;                    // guards what follows
  std::uint64_t head_ = 0;
  std::uint64_t cursor_ = 0;  // written under the mutex, by poll() and take() only
  // At a taken run's first position: its length << 1 | released. Runs lie between head_ and cursor_, which
  // are never more than a capacity apart, whatever the segment says: so none overwrites another.
  std::vector<std::uint64_t> taken_;
};

}  // namespace gristmill
