#pragma once

// Where a NaN or an infinity is. No torch. Any thread.

#include <cstdint>
#include <span>

namespace gristmill {

// Index of the first NaN or infinity, -1 when there is none. At memory speed when there is none.
std::int64_t first_non_finite(std::span<const float> values);

}  // namespace gristmill
