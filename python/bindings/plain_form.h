#pragma once

// The compact form's bytes: what plain_encoder.cc writes and plain_decoder.cc reads. After kPlainForm one
// value: a tag, and what follows it.

#include <cstdint>

namespace gristmill::python {

// Stored in messages; both ends are the same version of this library (the segment's layout hash).
enum Tag : std::uint8_t {
  kNone,
  kTrue,
  kFalse,
  kInt8,
  kInt32,
  kInt64,
  kFloat,
  kShortBytes,  // length: one byte
  kBytes,       // length: eight; the data may be a part
  kShortText,   // length: one byte; Latin-1
  kText,        // bytes a character, length
  kSmallTuple,  // count: one byte
  kTuple,       // count: four
  kList,
  kDict,
  kArray,     // type number, Fortran order, dimensions, shape; padding, data
  kInstance,  // length: one byte; module, zero, class; count: four; attributes' names and values
};

// Deeper values are pickle's.
inline constexpr int kMaxDepth = 24;
inline constexpr int kMaxDimensions = 64;

}  // namespace gristmill::python
