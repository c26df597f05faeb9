#pragma once

// A FIFO of byte messages of any size in shared memory: many producers, many consumers, threads and
// processes alike.
//
// Contract
//   - A put that returned kOk is delivered exactly once as long as a consumer lives. A producer killed
//     inside a put leaves the whole message or none; space that its dead owner never committed is
//     passed over ("skipped" in the statistics): capacity does not shrink.
//   - A get that was killed before it returned leaves its messages to the next consumer, or has taken
//     them: what a consumer had taken when it was killed died with it. Never twice, never torn.
//   - Order: that of commit, hence FIFO per producer. A large message (over kLargeMessage bytes) is
//     copied outside the lock; messages committed meanwhile do not wait for it, so that a producer
//     stopped amid its copy holds nobody up, and keeps its space. One that a dead consumer gives back
//     comes late.
//   - Full means producers wait (Overflow::kBlock), or the oldest give way, counted.
//   - Who waits for space for long takes turns: see core/message_turn.h. A put of much is not overtaken for
//     ever by puts of little; while another has the turn, a put finds the queue full although a small message
//     would fit. A waiter that is killed in its turn delays others for a slice of their sleep, one that is
//     stopped for MessageTurn::kHold, once.
//   - close(): puts are refused and waiting ends; what is left can still be taken.
//   - Locks are held for nanoseconds (microseconds for a batch of small messages). A process *stopped* in
//     one of them makes others wait, and time out, until it goes on or dies; nothing is taken from the
//     living.
//
// Layout
//
//   payload │ control │ leases │ byte ring, mapped twice in a row: every message is contiguous
//
// A record is an 8-byte word {length, state, lease} and the message behind it, padded to 16 bytes.
// Message data is aligned to 16 bytes, that of 1 KiB and more, and of reservations, to 64; the address modulo
// 4096 is the same in every process. Nothing that is read from the segment is trusted: an index out of bounds
// is kBroken.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/deadline.h"
#include "core/message_buffer.h"
#include "core/message_turn.h"

namespace gristmill {

// What a put does when the queue is full. Stored in shared memory: append only.
enum class Overflow : std::uint64_t {
  kBlock = 0,       // waits for space
  kDropOldest = 1,  // drops the oldest messages nobody has taken, until there is space
  kLatest = 2,      // drops every older message nobody has taken: only the newest is kept
};

struct MessageQueueOptions {
  // A message of this size always fits an empty queue; the ring is a little larger (whole pages).
  // Each message takes 8 bytes more, rounded up to 16.
  std::uint64_t max_size_bytes = std::uint64_t{8} << 20;
  std::uint64_t max_messages = 0;  // 0: bounded by bytes alone (and by 2^26 - 1)
  Overflow overflow = Overflow::kBlock;
};

struct MessageQueueStatistics {
  std::uint64_t puts = 0;          // messages committed, or reserved and not yet committed
  std::uint64_t gets = 0;          // messages taken
  std::uint64_t put_waits = 0;     // puts that found the queue full and waited
  std::uint64_t get_waits = 0;     // gets that found it empty and waited
  std::uint64_t skipped = 0;       // reservations abandoned, by death or by their owner
  std::uint64_t dropped = 0;       // messages that Overflow dropped
  std::uint64_t owner_deaths = 0;  // processes that died holding a lock
};

// Somebody whose reservation or taken batch keeps space from being used again.
struct MessageHolder {
  std::int64_t pid = 0;
  std::uint64_t taken = 0;     // messages taken in place and not released
  std::uint64_t reserved = 0;  // messages reserved and not committed
  std::uint64_t bytes = 0;     // of both
};

class MessageQueue {
 public:
  enum class Outcome {
    kOk,
    kTimedOut,
    kClosed,       // put: closed. get, take: closed and nothing is left
    kTooLarge,     // longer than largest_message(): can never fit
    kInterrupted,  // a signal handler ran in the waiting thread; only after return_on_signals(true)
    kBroken,       // the shared state is damaged beyond repair; nothing was touched
  };

  struct PutResult {
    Outcome outcome = Outcome::kOk;
    std::int64_t put = 0;        // messages that went in, from the front
    std::int64_t too_large = 0;  // kTooLarge: index of the first that can never fit; nothing was put
  };

  // Space for one message, to serialise in place. Movable; abandons it at destruction, unless
  // committed. The queue object must outlive it. Only the process that reserved may use it (in a
  // forked child, destruction does nothing).
  class Reservation {
   public:
    Reservation() = default;
    Reservation(Reservation&&) noexcept;
    Reservation& operator=(Reservation&&) noexcept;
    ~Reservation() { abandon(); }

    explicit operator bool() const { return queue_ != nullptr; }
    // The reserved bytes, uninitialised, aligned to 64. Valid until commit() or abandon().
    std::span<std::byte> bytes() const { return bytes_; }
    // Publishes the message; the second form only its first `length` bytes (<= bytes().size()).
    void commit() { commit(bytes_.size()); }
    void commit(std::size_t length);
    void abandon();

   private:
    friend class MessageQueue;
    MessageQueue* queue_ = nullptr;
    std::uint64_t position_ = 0;
    std::uint64_t owner_ = 0;  // the process
    std::span<std::byte> bytes_;
  };
  struct ReserveResult {
    Outcome outcome = Outcome::kOk;
    Reservation reservation;
  };

  // Messages taken in place, without a copy. Movable; releases at destruction. The queue object must
  // outlive it. Any thread of the process that took may release it; batches may be released in any
  // order, their space is free again in FIFO order. Until then it keeps later space from being freed.
  class Taken {
   public:
    Taken() = default;
    Taken(Taken&&) noexcept;
    Taken& operator=(Taken&&) noexcept;
    ~Taken() { release(); }

    std::size_t size() const { return messages_.size(); }
    // Valid until release().
    std::span<const std::byte> operator[](std::size_t index) const { return messages_[index]; }
    // Releases messages [0, count), or what is left of them: their space need not wait for the others.
    void release_first(std::size_t count);
    void release() { release_first(messages_.size()); }

   private:
    friend class MessageQueue;
    MessageQueue* queue_ = nullptr;
    std::uint64_t owner_ = 0;  // the process
    std::size_t released_ = 0;
    std::vector<std::span<const std::byte>> messages_;
  };
  struct TakeResult {
    Outcome outcome = Outcome::kOk;
    Taken batch;  // empty unless kOk
  };

  static constexpr std::uint64_t kNoLimit = ~std::uint64_t{0};
  // Longer messages are copied outside the lock.
  static constexpr std::uint64_t kLargeMessage = 4096;

  // Creates the segment `name` (of segment_name()). Throws std::invalid_argument for options out of
  // range, SegmentError (kNoSpace names bytes needed and available).
  static std::unique_ptr<MessageQueue> create(const std::string& name, const MessageQueueOptions& options);
  // Attaches; the options are read from the segment. Throws SegmentError.
  static std::unique_ptr<MessageQueue> attach(const std::string& name, Deadline deadline);
  // Bytes of shared memory that create() would take.
  static std::size_t bytes_needed(const MessageQueueOptions& options);

  ~MessageQueue();

  const MessageQueueOptions& options() const;
  const std::string& name() const;
  // Length of the ring: messages, their words and padding.
  std::uint64_t capacity_bytes() const;
  // The longest message that fits the empty queue.
  std::uint64_t largest_message() const;

  // Every method below: any process, any thread. Deadline::now() never blocks for space or messages
  // (only, for a bounded time, for the lock).

  // Copies one message in. Blocks until the deadline while full. turn, here and below: for a caller that
  // waits by several calls, each a while, and is to keep its place among those who wait: from turn(), for one
  // put.
  PutResult put(std::span<const std::byte> message, Deadline deadline, MessageTurn* turn = nullptr);
  PutResult try_put(std::span<const std::byte> message) { return put(message, Deadline::now()); }
  // One message made of parts that lie apart, in order.
  PutResult put_parts(std::span<const std::span<const std::byte>> parts, Deadline deadline,
                      MessageTurn* turn = nullptr);
  // Messages in order: one lock and one wake-up for as many as there is space for; goes in parts when
  // there is less. `put` says how many went in, whatever the outcome.
  PutResult put_many(std::span<const std::span<const std::byte>> messages, Deadline deadline,
                     MessageTurn* turn = nullptr);
  // The same for messages that lie in a row: message i is packed[ends[i - 1], ends[i]), the first from
  // 0. Throws std::invalid_argument unless ends ascend within packed.
  PutResult put_packed(std::span<const std::byte> packed, std::span<const std::uint64_t> ends,
                       Deadline deadline, MessageTurn* turn = nullptr);
  // Space for a message of `length` bytes. Blocks until the deadline while full.
  ReserveResult reserve(std::uint64_t length, Deadline deadline, MessageTurn* turn = nullptr);
  // Must not outlive the queue object.
  MessageTurn turn() const;

  // Copies into `into` (whose former content is dropped) what is ready, at once when at least one
  // message is: at most `max` messages (>= 1) of `max_bytes` together, the first one whatever its
  // size. Waits until the deadline for the first one. into.size() says how many; 0 unless kOk. Throws
  // std::invalid_argument for max < 1, std::bad_alloc before anything is taken.
  Outcome get_many(std::int64_t max, std::uint64_t max_bytes, MessageBuffer& into, Deadline deadline);
  Outcome get(MessageBuffer& into, Deadline deadline) { return get_many(1, kNoLimit, into, deadline); }
  // The same without a copy.
  TakeResult take(std::int64_t max, std::uint64_t max_bytes, Deadline deadline);

  // Wait until something may be taken, or a message of `length` bytes put, by whoever is first, or the
  // queue is closed; take and put nothing. kOk, kTimedOut, or kInterrupted. For callers that must not
  // block in the call itself, such as event loops. They take no turn.
  Outcome wait_readable(Deadline deadline);
  Outcome wait_writable(std::uint64_t length, Deadline deadline);

  void close();
  bool closed() const;
  // Messages put and not taken (a reservation counts from the start, and no longer when abandoned).
  std::int64_t size() const;
  // Bytes of the ring in use, those of taken batches and reservations included.
  std::uint64_t bytes_used() const;
  MessageQueueStatistics statistics() const;
  // Who keeps space: worth naming when a put times out. Empty when nobody does.
  std::vector<MessageHolder> holders() const;

  // For this object: whether waiting ends with kInterrupted when a signal handler has run in the
  // waiting thread (Python's Ctrl-C). Default: no.
  void return_on_signals(bool yes);

  // Passes over what dead processes left; returns how many records. Waiting puts and gets do it by
  // themselves every slice; a supervisor that saw a death calls it to be quick.
  std::int64_t recover();

  // Removes the name (mappings stay valid).
  void unlink() noexcept;

 private:
  struct Impl;
  explicit MessageQueue(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gristmill
