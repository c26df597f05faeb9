#include "tests/campaign/box_audit.h"

#include <algorithm>
#include <string>

namespace gristmill::campaign {

void BoxAudit::wrote(std::uint64_t version, std::uint64_t write) {
  result_.count(Measure::kAcknowledged, 1);
  if (!writes_.emplace(version, write).second) {
    result_.find(Finding::kDoubled, 1,
                 "two writes were told that they are version " + std::to_string(version));
  }
}

void BoxAudit::settle(std::uint64_t newest) {
  if (!writes_.empty() && writes_.rbegin()->first > newest) {
    result_.find(Finding::kLost, 1,
                 "version " + std::to_string(writes_.rbegin()->first) + " was acknowledged, the box has " +
                     std::to_string(newest));
  }
  std::sort(sights_.begin(), sights_.end(),
            [](const auto& a, const auto& b) { return a.version < b.version; });
  // What each group may hold in the version looked at. More than one tag only behind unacknowledged writes.
  std::array<std::vector<std::uint64_t>, kBoxGroups> state;
  for (auto& tags : state) tags = {0};
  auto sight = sights_.begin();
  std::uint64_t unknown = 0;
  for (std::uint64_t version = 0; version <= newest; ++version) {
    const auto write = writes_.find(version);
    if (write != writes_.end()) {
      for (std::size_t g = 0; g < kBoxGroups; ++g) {
        if (BoxWrite::covers(write->second, g)) state[g] = {BoxWrite::tag(write->second)};
      }
    } else if (version > 0) {
      ++unknown;
      for (const std::uint64_t pending : pending_) {
        for (std::size_t g = 0; g < kBoxGroups; ++g) {
          if (BoxWrite::covers(pending, g)) state[g].push_back(BoxWrite::tag(pending));
        }
      }
    }
    for (; sight != sights_.end() && sight->version == version; ++sight) {
      for (std::size_t g = 0; g < kBoxGroups; ++g) {
        const std::uint64_t tag = sight->tags[g];
        if (tag == BoxSight::kNotRead) continue;
        if (std::find(state[g].begin(), state[g].end(), tag) == state[g].end()) {
          result_.find(Finding::kTorn, 1,
                       "version " + std::to_string(version) + " has tag " + std::to_string(tag) +
                           " in group " + std::to_string(g) + ": expected " +
                           std::to_string(state[g].front()));
        } else {
          state[g] = {tag};  // of this version all see the same
        }
      }
    }
  }
  if (sight != sights_.end()) {
    result_.find(Finding::kDamaged, 1,
                 "version " + std::to_string(sight->version) + " was read, but never written");
  }
  result_.count(Measure::kUnacknowledged, unknown);
  if (unknown > pending_.size()) {
    result_.find(Finding::kDamaged, unknown - pending_.size(), "versions that nobody wrote");
  }
}

}  // namespace gristmill::campaign
