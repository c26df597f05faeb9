#pragma once

// A FIFO of fixed-schema trajectories in shared memory: many producers, one consumer.
//
// Contract
//   - put_many() that returned kOk: each of its trajectories is delivered exactly once as long as a
//     consumer lives. A producer killed inside put_many leaves complete trajectories or none; a
//     claimed place that its dead owner never committed is given to the next put ("refilled" in
//     the statistics): capacity does not shrink, nothing torn is ever delivered.
//   - get_many(n) hands out views of exactly n consecutive places, without a copy: field f is one
//     contiguous [n, shape...] array. Places are free again when the batch is released.
//   - A consumer killed before release leaves its trajectories to the next consumer.
//   - Order: by claim. After a producer's death its abandoned places are filled by later puts.
//   - Full means producers wait: that bounds policy lag.
//   - close(): waiting ends; what is left can still be taken.
//
// Layout: each field has a ring of its own, mapped twice in a row so that its end is hidden:
//
//   payload │ control │ leases │ place words │ ring of field 0 │ ring of field 1 │ …
//
// Positions count up for ever; ring f holds position p at p mod places_f, where places_f >= capacity
// is such that the ring is a whole number of pages. A field with so few factors of two in its size
// that such a ring would more than double (an odd number of bytes needs 4096 places) is held without
// the mirror instead: only the part of a batch that lies beyond the ring's end is then copied once
// more, by get_many. A field of no bytes is fine: its address means nothing.
// Single writers: head: the consumer; tail and place words: the holder of the lock (a place word's
// kReady: its claimant; details in trajectory_layout.h).

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "core/deadline.h"
#include "core/field_spec.h"

namespace gristmill {

struct TrajectoryQueueStatistics {
  std::uint64_t puts = 0;          // trajectories committed
  std::uint64_t gets = 0;          // trajectories released by the consumer
  std::uint64_t abandoned = 0;     // places whose claimant died
  std::uint64_t refilled = 0;      // of these, filled again
  std::uint64_t put_waits = 0;     // puts that found the queue full
  std::uint64_t get_waits = 0;     // gets that found too few
  std::uint64_t owner_deaths = 0;  // processes that died holding the lock
};

class TrajectoryQueue {
 public:
  enum class Outcome {
    kOk,
    kTimedOut,
    kClosed,
    kBroken,  // the shared state is damaged beyond repair; nothing was touched
  };

  struct PutResult {
    Outcome outcome = Outcome::kOk;
    std::int64_t put = 0;                // trajectories that went in, from the front
    std::chrono::nanoseconds waited{0};  // time spent waiting for space, for the profile
    // The last places in a row that it filled, for the trace: all of them unless it went in parts.
    std::uint64_t run_begin = 0;
    std::int64_t run_count = 0;
  };

  // n consecutive trajectories in place. Movable; releases at destruction. The queue object must
  // outlive it. May be released from any thread of the consumer.
  class Batch {
   public:
    Batch() = default;
    Batch(Batch&&) noexcept;
    Batch& operator=(Batch&&) noexcept;
    ~Batch() { release(); }

    std::int64_t size() const { return size_; }
    // Of the first trajectory, counting from the queue's beginning.
    std::uint64_t position() const { return begin_; }
    // [size(), shape...] of field `index`, contiguous, row-major. Valid until release().
    std::byte* field(std::size_t index) const;
    // Frees the places. Batches may be released in any order; places become free in FIFO order.
    void release();

   private:
    friend class TrajectoryQueue;
    TrajectoryQueue* queue_ = nullptr;
    std::uint64_t begin_ = 0;
    std::int64_t size_ = 0;
  };

  struct GetResult {
    Outcome outcome = Outcome::kOk;
    Batch batch;  // empty unless kOk
  };

  // Creates the segment `name`. capacity is in trajectories, >= 1. Throws std::invalid_argument for
  // a bad spec or capacity, SegmentError (kNoSpace names bytes needed and available).
  static std::unique_ptr<TrajectoryQueue> create(const std::string& name, const FieldSpecs& spec,
                                                 std::int64_t capacity);
  // Attaches; the spec is read from the segment. Throws SegmentError.
  static std::unique_ptr<TrajectoryQueue> attach(const std::string& name, Deadline deadline);
  // Bytes of shared memory that create() would take.
  static std::size_t bytes_needed(const FieldSpecs& spec, std::int64_t capacity);

  ~TrajectoryQueue();

  const FieldSpecs& spec() const;
  std::int64_t capacity() const;
  const std::string& name() const;

  // Copies `count` trajectories in: fields[f] points to [count, shape...] of field f, contiguous.
  // One claim and one copy per field while there is space; goes in parts, in order, when count is
  // more than the space. Blocks until the deadline while full. Any process, any thread. Throws
  // std::invalid_argument when fields do not fit the spec.
  PutResult put_many(std::span<const std::byte* const> fields, std::int64_t count, Deadline deadline);

  // Takes exactly n consecutive trajectories, waiting for them until the deadline. After close(),
  // takes what is left if it is fewer (kClosed when nothing is). 1 <= n <= capacity. One consumer
  // process at a time, any one thread of it; throws std::logic_error when another living process (or
  // another object of this one) is the consumer, std::invalid_argument for a bad n. A consumer's
  // successor starts at the oldest trajectory not released.
  GetResult get_many(std::int64_t n, Deadline deadline);

  void close();
  bool closed() const;
  // Trajectories committed or claimed, and not released yet.
  std::int64_t size() const;
  TrajectoryQueueStatistics statistics() const;

  // Gives places claimed by proved-dead processes to the next put; returns how many. Waiting puts
  // and gets do it by themselves every slice; a supervisor that saw a death calls it to be quick.
  std::int64_t recover();

  // Removes the name (mappings stay valid).
  void unlink() noexcept;

 private:
  struct Impl;
  explicit TrajectoryQueue(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gristmill
