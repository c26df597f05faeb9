#pragma once

// Starts the processes of a round, kills and stops them at random, and replaces the dead.

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/campaign/scene.h"
#include "tests/campaign/shared.h"

namespace gristmill::campaign {

// One thread of one process: that of the round, whose children the players are.
class Tormentor {
 public:
  Tormentor(const Plan& plan, Scene& scene, Result& result);
  ~Tormentor();  // kills whoever is left
  Tormentor(const Tormentor&) = delete;
  Tormentor& operator=(const Tormentor&) = delete;

  // Starts everybody and torments them for the plan's duration; sooner when something hangs.
  void torment();
  static constexpr std::size_t kNobody = ~std::size_t{0};
  bool hopeless() const { return hopeless_; }  // something hangs: what follows could hang, too

  // Afterwards, in order. calm(): everybody goes on, and nobody is replaced; who has a fault point armed may
  // still come to it.
  void calm();
  void kill_everybody();
  // Producers and writers end after their operation.
  void tell_to_finish() { state_->finish.store(true); }
  // Consumers end when nothing is left.
  void tell_to_drain() { state_->drain.store(true); }
  // Until nobody plays `role` any more. Whoever of it is killed at a fault point is replaced when `restart`;
  // and there is always somebody who plays `keep`. Finds kHung, names the operation and returns false when
  // that takes too long.
  bool await_end(std::size_t role, bool restart = false, std::size_t keep = kNobody);
  // One without a fault point, if nobody plays the role.
  void ensure_one(std::size_t role);
  // One that is killed when it comes to this fault point, if there is a free slot for the role.
  void start_one(std::size_t role, std::string_view point);
  // Adds up what the slots have measured. Once, at the end.
  void settle();

 private:
  struct Process {
    std::size_t role = 0;
    pid_t pid = 0;  // 0: nobody is there
    std::uint64_t life = 0;
    std::uint64_t start_at = 0;     // of the next one
    std::uint64_t continue_at = 0;  // 0: not stopped
    bool killed = false;            // by us
    bool fell = false;              // the last one was killed, by us or at a fault point
    std::size_t armed = kNone;      // an index into all_points()
  };
  static constexpr std::size_t kNone = ~std::size_t{0};
  static constexpr std::size_t kAny = kNone - 1;
  static constexpr std::uint64_t kMs = 1'000'000;
  // An operation that takes so long although it could go on will not end any more.
  static constexpr std::uint64_t kHungAfter = 3000 * kMs;

  // armed: an index into all_points(), kNone, or kAny for one drawn by lot.
  void start(std::size_t slot, std::size_t armed);
  void play(std::size_t slot, std::size_t armed, bool stops, int pass);  // in the child; never returns
  void fault();
  void kill(std::size_t slot, How how);
  void stop(std::size_t slot);
  void go_on(std::size_t slot);
  void tend(std::uint64_t until);  // reaps, continues, starts, reads logs; until then at least once
  void reap();
  void ended(std::size_t slot, int status);
  std::uint64_t happened_at(std::size_t slot) const;
  void read_log(std::size_t slot);
  // Sets the clocks anew, as of `now`: the moment at which something changed.
  void excuse(std::uint64_t now = nanoseconds_now());
  void look_for_hangs();
  bool may_be_killed(std::size_t slot) const;
  std::vector<std::size_t> living() const;
  void count(std::size_t slot, How how) {
    ++result_.faults[processes_[slot].role][static_cast<std::size_t>(how)];
  }

  const Plan plan_;
  Scene& scene_;
  Result& result_;
  Random random_;
  const std::vector<Role> cast_;
  std::vector<Process> processes_;
  Shared<RoundState> state_;
  Shared<Slot> slots_;
  std::vector<std::size_t> points_;  // as indices into all_points()
  std::uint64_t lives_ = 0;
  bool calm_ = false;
  bool hopeless_ = false;
};

}  // namespace gristmill::campaign
