#pragma once

// What the campaign tells, one JSON object a line.

#include <cstdint>
#include <string>

#include "tests/campaign/plan.h"
#include "tests/campaign/result.h"

namespace gristmill::campaign {

// {"event": "round", …}: after each round.
std::string round_line(const Plan& plan, const Result& result, double seconds);
// {"event": "summary", "parts": {…}, …}: the last line. totals[p]: of all rounds of part p.
std::string summary_line(std::uint64_t seed, std::uint64_t rounds, double seconds, const Result* totals);
// {"event": "points", …}: every fault point, by part.
std::string points_line();

}  // namespace gristmill::campaign
