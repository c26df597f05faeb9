#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace gristmill {

// Least number of insertions, deletions, replacements and swaps of neighbours (optimal string
// alignment) that turn `a` into `b`. Case does not count.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The name most like `name`; a match of the part after the last dot counts too, so that "gamma" and
// "train.gamma" find "learner.gamma"; and an abbreviation is near, "lr" to "learning_rate". REQUIRES: names
// is not empty.
std::string nearest_name(std::string_view name, const std::vector<std::string>& names);

}  // namespace gristmill
