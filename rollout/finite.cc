#include "rollout/finite.h"

#include <bit>

namespace gristmill {

std::int64_t first_not_finite(std::span<const float> values) {
  constexpr std::uint32_t kExponent = 0x7f800000U;
  // Integers: an or-reduction vectorises where a float sum may not be reordered.
  bool any = false;
  for (const float value : values) any |= (std::bit_cast<std::uint32_t>(value) & kExponent) == kExponent;
  if (!any) return -1;
  std::int64_t index = 0;
  for (const float value : values) {
    if ((std::bit_cast<std::uint32_t>(value) & kExponent) == kExponent) return index;
    ++index;
  }
  return -1;
}

}  // namespace gristmill
