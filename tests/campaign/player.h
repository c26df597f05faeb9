#pragma once

// What a forked process of a round has in hand.

#include <span>
#include <string>

#include "core/deadline.h"
#include "tests/campaign/faults.h"
#include "tests/campaign/plan.h"
#include "tests/campaign/random.h"
#include "tests/campaign/result.h"
#include "tests/campaign/slot.h"

namespace gristmill::campaign {

class Player {
 public:
  Player(Slot& own, std::size_t slot_index, RoundState& state, const Plan& plan, std::uint64_t number)
      : slot(own),
        index(slot_index),
        random(plan.seed ^ plan.number << 20, number),
        life(number),
        mistake(plan.mistake),
        state_(state) {}

  Slot& slot;
  const std::size_t index;  // of the slot
  Random random;
  const std::uint64_t life;  // of this round; 1 is the first
  const Mistake mistake;

  bool draining() const { return state_.drain.load(std::memory_order_relaxed); }
  bool finishing() const { return state_.finish.load(std::memory_order_relaxed); }
  const ExcusedClock& clock(int which) const { return state_.clocks[which]; }
  // True once in about `n` calls, and only where that mistake is to be made.
  bool makes(Mistake which, std::uint64_t n) { return mistake == which && random.below(n) == 0; }

  // Waits until the tormentor has read enough for `words` more. REQUIRES: words <= kLogWords.
  void await_log_room(std::size_t words) const;
  // Appends: visible all at once, hence after a death the whole of it or nothing.
  void log(std::span<const std::uint64_t> words) const;
  // Says what was wrong; the process should end with the returned code.
  int fail(Finding what, const std::string& text) const;
  // Sleeps, outside any operation.
  void pause(std::uint64_t microseconds) const;

  // Nanoseconds for which this process was runnable and had no core, as of a look at most a millisecond ago;
  // and now. 0 where the kernel does not say.
  std::uint64_t waited_for_core(std::uint64_t now);
  std::uint64_t waited_for_core_now();

  // For who waits for space: when somebody last made some.
  void note_take() { state_.took_at[index].store(nanoseconds_now(), std::memory_order_release); }
  std::uint64_t last_take() const;

  // How long an operation may wait: mostly long, sometimes briefly, sometimes not at all.
  Deadline some_deadline();

 private:
  RoundState& state_;
  int schedstat_ = -1;
  std::uint64_t looked_at_ = 0;
  std::uint64_t waited_ = 0;
};

// Measures one operation: what it took, less what its clock excuses; and by how much it missed its
// deadline, less the time in which this very process was stopped. Both also without the time in which it was
// runnable and had no core: the machine's business.
class Stopwatch {
 public:
  // counts: false for a wait that says nothing (the other side takes its time on purpose).
  Stopwatch(Player& player, int clock, const char* name, Deadline deadline, bool counts = true);
  ~Stopwatch();
  // It could not have ended before: what it waited for was not there.
  void could_end_from(std::uint64_t ns) { since_ = ns > since_ ? ns : since_; }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  Player& player_;
  const ExcusedClock& clock_;
  const Deadline deadline_;
  const bool counts_;
  std::uint64_t begin_;
  std::uint64_t since_;  // when it could go on
  std::uint64_t excused_;
  std::uint64_t own_stops_;
  std::uint64_t waited_;
  const char* const name_;
};

}  // namespace gristmill::campaign
