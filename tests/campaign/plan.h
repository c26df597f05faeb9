#pragma once

// One round, as seed and number determine it.

#include <chrono>
#include <cstdint>
#include <string>

#include "tests/campaign/faults.h"
#include "tests/campaign/random.h"

namespace gristmill::campaign {

struct Plan {
  std::uint64_t seed = 0;
  std::uint64_t number = 0;
  Part part = Part::kQueue;
  Mistake mistake = Mistake::kNone;
  std::string run;  // of the segments' names: no other campaign's on this machine
  std::chrono::milliseconds duration{1500};
  std::chrono::milliseconds stall_limit{100};

  double mean_gap_us = 1000;  // between two faults
  double arms = 0.5;          // of the processes started, this share has a fault point armed
  double stops = 0.2;         // of the faults, this share are SIGSTOPs
  bool spare_takers = false;  // readers and consumers are stopped, but not killed
  bool spare_putters = false;
  bool everybody_dies = false;  // at the end; otherwise it is orderly

  // `part` and what follows, from seed and number.
  static Plan of(std::uint64_t seed, std::uint64_t number);
  // "--seed 3 --round 17": how to play it again.
  std::string again() const;
};

// The part of round `number`: the same for every seed, so that each part has its share of the time.
Part part_of_round(std::uint64_t number);

}  // namespace gristmill::campaign
