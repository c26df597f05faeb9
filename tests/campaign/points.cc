#include "tests/campaign/points.h"

namespace gristmill::campaign {

const std::vector<Point>& all_points() {
  static const std::vector<Point> points = [] {
    std::vector<Point> found;
    const auto add = [&](Part part, std::string_view name) {
      const bool repair = name.find("repair") != name.npos || name.find("recover") != name.npos ||
                          name.find("recount") != name.npos || name.find("reclaim") != name.npos ||
                          name.find("refill") != name.npos;
      const bool rare = repair || name.find("late") != name.npos || name.find("drop") != name.npos;
      found.push_back({name, part, repair, rare});
    };
#define GRISTMILL_CAMPAIGN_POINT(part, name) add(Part::part, name);
#include "tests/campaign/points.inc"
#undef GRISTMILL_CAMPAIGN_POINT
    return found;
  }();
  return points;
}

std::vector<std::size_t> points_of(Part part) {
  std::vector<std::size_t> indices;
  for (std::size_t i = 0; i < all_points().size(); ++i) {
    if (all_points()[i].part == part) indices.push_back(i);
  }
  return indices;
}

}  // namespace gristmill::campaign
