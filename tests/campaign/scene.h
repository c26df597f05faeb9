#pragma once

// A part under test: who plays in a round of it, and what must hold.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tests/campaign/plan.h"
#include "tests/campaign/player.h"
#include "tests/campaign/result.h"

namespace gristmill::campaign {

class Tormentor;

struct Role {
  enum class Side { kPuts, kTakes, kNeither };

  std::string_view name;
  Side side = Side::kNeither;
  std::size_t count = 1;  // processes at a time
};

class Scene {
 public:
  virtual ~Scene() = default;

  virtual std::vector<Role> cast() const = 0;
  // How long who plays should live on average at least, where more faults would keep it from ever coming to
  // what the round is about.
  virtual double least_life_us() const { return 4000; }
  // Fault points that this round is about: they are armed far more often.
  virtual bool favours(std::string_view) const { return false; }

  // In the forked process: plays until killed, or until there is nothing left to do. 0, or Player::fail.
  virtual int play(std::size_t role, Player& player) = 0;

  // The rest in the round's own process.
  // A process is about to be forked for slot `slot`; `life` is its number.
  virtual void began(std::size_t slot, std::size_t role, std::uint64_t life) = 0;
  // Words that it has logged, in order. Never after its ended().
  virtual void logged(std::size_t slot, std::span<const std::uint64_t> words) = 0;
  // It has ended; all that it logged has been told.
  virtual void ended(std::size_t slot, const Slot& record, bool killed) = 0;
  // How the part looks, for whoever reads of a process that hangs in it.
  virtual std::string described() const { return ""; }
  // After the torment: brings the round to an end, and checks what must hold then.
  virtual void finish(Tormentor& tormentor, Result& result) = 0;
};

}  // namespace gristmill::campaign
