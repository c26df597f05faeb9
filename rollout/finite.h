#pragma once

#include <cstdint>
#include <span>

namespace gristmill {

// Index of the first NaN or infinity, -1 when all are finite. No allocation; a few GB/s and more.
std::int64_t first_not_finite(std::span<const float> values);

}  // namespace gristmill
