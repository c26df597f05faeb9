#include "tests/campaign/result.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace gristmill::campaign {

void Result::find(Finding what, std::uint64_t count, const std::string& text) {
  if (count == 0) return;
  findings[static_cast<std::size_t>(what)] += count;
  if (text_count == kTexts) return;
  const std::string all = std::string(kFindingNames[static_cast<std::size_t>(what)]) + ": " + text;
  const std::size_t length = std::min(all.size(), kText - 1);
  std::memcpy(texts[text_count], all.data(), length);
  texts[text_count++][length] = '\0';
}

void Result::add(const Result& round) {
  for (std::size_t r = 0; r < kMaxRoles; ++r) {
    if (roles[r][0] == '\0') std::memcpy(roles[r], round.roles[r], sizeof roles[r]);
    processes[r] = round.processes[r];
    for (std::size_t h = 0; h < kHows; ++h) faults[r][h] += round.faults[r][h];
  }
  for (std::size_t p = 0; p < kMaxPoints; ++p) {
    point_kills[p] += round.point_kills[p];
    point_stops[p] += round.point_stops[p];
  }
  for (std::size_t m = 0; m < kMeasures; ++m) measures[m] += round.measures[m];
  for (std::size_t f = 0; f < kFindings; ++f) findings[f] += round.findings[f];
  stalls.add(round.stalls);
  net_stalls.add(round.net_stalls);
  late.add(round.late);
  noise.add(round.noise);
}

std::uint64_t Result::violations() const {
  return std::accumulate(findings, findings + kFindings, std::uint64_t{0});
}

std::uint64_t Result::kills() const {
  std::uint64_t sum = 0;
  for (const auto& role : faults) {
    for (std::size_t h = 0; h < kHows; ++h) sum += is_kill(h) ? role[h] : 0;
  }
  return sum;
}

std::uint64_t Result::stops() const {
  std::uint64_t sum = 0;
  for (const auto& role : faults) {
    for (std::size_t h = 0; h < kHows; ++h) sum += is_kill(h) ? 0 : role[h];
  }
  return sum;
}

}  // namespace gristmill::campaign
