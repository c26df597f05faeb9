#pragma once

// The names of segments: what they say about their owner, and which are acceptable.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/process_identity.h"

namespace gristmill {

struct SegmentName {
  ProcessIdentity owner;
  std::uint64_t name_space = 0;  // identity_namespace() of the owner

  // nullopt when `name` (with its leading slash) is none that segment_name() makes.
  static std::optional<SegmentName> parse(std::string_view name);
  // Throws std::invalid_argument that says what is wrong with it.
  static SegmentName parse_or_throw(std::string_view name);

  // Both are certain only within one namespace.
  bool judgeable() const { return name_space == identity_namespace(); }
  bool owner_proved_dead() const { return judgeable() && owner.proved_dead(); }
};

}  // namespace gristmill
