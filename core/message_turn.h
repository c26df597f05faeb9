#pragma once

// Whose turn it is to put, when producers wait for space: so that a put of much is not overtaken for ever by
// puts of little.
//
// A put that has waited for kPatience draws a ticket, and takes the turn when nobody has it, or somebody with
// a later ticket. Until it is in, other puts find the queue full. A turn is only about order, and so may
// lapse: it holds for kHold, and its holder, who wakes up more often, holds it anew. One that is killed
// delays the others by a slice of their sleep, one that is stopped by kHold, once. After kLongest the holder
// lets the others go first for kRest: what it waits for may depend on them (a consumer that keeps messages in
// place, and waits for more).
//
// Hence, while consumers take what is there: a put waits for no more than those whose tickets are older, each
// for its space, and, when kLongest is not enough for the ring to empty that far, for more such rounds.

#include <atomic>
#include <chrono>
#include <cstdint>

#include "core/fault_point.h"

namespace gristmill {

// In shared memory. All zeros: nobody has the turn.
struct MessageTurns {
  // Until when in milliseconds (26 bits) │ ticket (16) │ its holder's pid (22). By compare-exchange: whoever
  // takes the turn, renews it, gives it back, or finds that it has lapsed or that its holder is gone.
  std::atomic<std::uint64_t> turn{0};
  std::atomic<std::uint64_t> tickets{0};  // drawn so far
};

// One put's part in it. One thread.
class MessageTurn {
 public:
  static constexpr std::int64_t kPatience = 50;  // all in milliseconds
  static constexpr std::int64_t kHold = 60;
  static constexpr std::int64_t kLongest = 1000;
  static constexpr std::int64_t kRest = 200;

  explicit MessageTurn(MessageTurns& turns) : turns_(turns) {}
  ~MessageTurn() {
    if (has_ticket_) give_back();
  }
  MessageTurn(const MessageTurn&) = delete;
  MessageTurn& operator=(const MessageTurn&) = delete;

  // Gives the turn back, and returns whether it had it: then others may go on now.
  bool done();

  // Milliseconds on the monotonic clock.
  static std::int64_t now() {
    return std::chrono::duration_cast<std::chrono::milliseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }

  // Whether another has the turn. Looks at the clock only when somebody has it.
  bool is_anothers() const {
    const std::uint64_t turn = turns_.turn.load(std::memory_order_relaxed);
    return turn != 0 && is_anothers_now(turn);
  }
  bool is_anothers(std::int64_t at) const {
    const std::uint64_t turn = turns_.turn.load(std::memory_order_relaxed);
    return turn != 0 && is_anothers(turn, at);
  }
  // Gives the turn back for a holder that is gone.
  void forget_dead() const;
  // The put still waits: begins its patience, takes the turn or renews it, or gives it back when it had it
  // for too long; true then: others may go on now.
  bool wait(std::int64_t now);

 private:
  static constexpr int kPidBits = 22;  // the kernel's PID_MAX_LIMIT is 2^22
  static constexpr int kTicketBits = 16;
  static constexpr std::uint64_t kPidMask = (std::uint64_t{1} << kPidBits) - 1;
  static constexpr std::uint64_t kTicketMask = (std::uint64_t{1} << kTicketBits) - 1;
  static constexpr std::uint64_t kTimeMask = (std::uint64_t{1} << (64 - kPidBits - kTicketBits)) - 1;
  static std::uint64_t pack(std::int64_t until, std::uint64_t ticket);
  static std::uint64_t ticket_of(std::uint64_t turn) { return turn >> kPidBits & kTicketMask; }
  // Modulo 18 hours, which is as good: one that holds for longer than anybody takes it is lapsed, or damage.
  static bool holds(std::uint64_t turn, std::int64_t now) {
    const std::uint64_t left = (turn >> (kPidBits + kTicketBits)) - static_cast<std::uint64_t>(now);
    return ((left - 1) & kTimeMask) < 10 * kHold;
  }
  bool is_anothers(std::uint64_t turn, std::int64_t now) const;
  bool is_anothers_now(std::uint64_t turn) const;  // apart: the clock is not for the way of every message
  bool give_back();

  MessageTurns& turns_;
  bool has_ticket_ = false;
  std::uint64_t ticket_ = 0;
  std::int64_t since_ = -1;  // waiting, or resting; -1: not yet
  std::int64_t held_since_ = -1;
};

}  // namespace gristmill
