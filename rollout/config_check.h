#pragma once

#include <string>
#include <vector>

#include "rollout/config.h"

namespace gristmill {

// Contradictions between options that are valid one by one; each says where the values came from
// and which values would do.
std::vector<std::string> contradictions(const ResolvedConfig& resolved);

}  // namespace gristmill
