#pragma once

// The fault points that core/ has, by the part whose processes pass them: found in its sources when the
// build is configured, so that there is no list to keep.

#include <cstddef>
#include <string_view>
#include <vector>

#include "tests/campaign/faults.h"

namespace gristmill::campaign {

struct Point {
  std::string_view name;  // as fault::arm takes it; a literal
  Part part;
  bool repair;  // of the repair of what a death left
  bool rare;    // passed only after a death, or by a message that comes late
};

const std::vector<Point>& all_points();
// Indices into all_points().
std::vector<std::size_t> points_of(Part part);

}  // namespace gristmill::campaign
