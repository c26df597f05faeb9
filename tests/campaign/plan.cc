#include "tests/campaign/plan.h"

namespace gristmill::campaign {

Part part_of_round(std::uint64_t number) {
  constexpr Part kTurns[] = {Part::kQueue, Part::kTrajectories, Part::kBox,   Part::kQueue,
                             Part::kBox,   Part::kTrajectories, Part::kQueue, Part::kSegments};
  return kTurns[number % std::size(kTurns)];
}

Plan Plan::of(std::uint64_t seed, std::uint64_t number) {
  constexpr double kGaps[] = {600, 1200, 2500};
  constexpr double kArms[] = {0.2, 0.5, 0.9};
  constexpr double kStops[] = {0.0, 0.15, 0.35};
  Random random(seed, number);
  Plan plan;
  plan.seed = seed;
  plan.number = number;
  plan.part = part_of_round(number);
  plan.mean_gap_us = random.pick(kGaps);
  plan.arms = random.pick(kArms);
  plan.stops = random.pick(kStops);
  const std::uint64_t spared = random.below(5);
  plan.spare_takers = spared <= 1;
  plan.spare_putters = spared == 2;
  plan.everybody_dies = random.chance(0.3);
  return plan;
}

std::string Plan::again() const {
  return "--seed " + std::to_string(seed) + " --round " + std::to_string(number);
}

}  // namespace gristmill::campaign
