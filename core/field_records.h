#pragma once

// A FieldSpecs as fixed-size records in shared memory, so that whoever attaches learns the spec from
// the segment. Written by the creator before READY, and never again.

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/field_spec.h"

namespace gristmill {

struct FieldRecord {
  char name[kMaxFieldName + 1];  // NUL-terminated
  std::uint8_t dtype;
  std::uint8_t dims;
  std::uint8_t zero[6];
  std::int64_t shape[kMaxFieldDims];  // the first `dims` count
};
static_assert(sizeof(FieldRecord) == kMaxFieldName + 1 + 8 + 8 * kMaxFieldDims);

// REQUIRES: validate(specs) passes; records.size() == specs.size().
void write_field_records(const FieldSpecs& specs, std::span<FieldRecord> records);

// Trusts nothing: copies each record once, then checks it. Throws std::invalid_argument that names
// the field's number and what is wrong with it; the result passes validate().
FieldSpecs read_field_records(std::span<const FieldRecord> records);

}  // namespace gristmill
