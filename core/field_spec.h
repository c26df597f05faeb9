#pragma once

// What a block of shared memory holds: named arrays of one dtype and shape each.
// Used by TrajectoryQueue (shape of one trajectory) and by Box (shape of one version).

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gristmill {

// Values are stored in shared memory: append only.
enum class DType : std::uint8_t {
  kBool = 0,
  kUInt8 = 1,
  kInt8 = 2,
  kInt16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kFloat16 = 6,
  kBFloat16 = 7,
  kFloat32 = 8,
  kFloat64 = 9,
};

// Bytes of one element.
std::size_t dtype_size(DType dtype);
// NumPy's name, e.g. "float32"; kBFloat16 is "bfloat16".
std::string_view dtype_name(DType dtype);
// Inverse of dtype_name. Throws std::invalid_argument naming the known ones.
DType dtype_from_name(std::string_view name);

struct FieldSpec {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<std::int64_t> shape;  // row-major; empty means a scalar

  std::int64_t elements() const;
  std::size_t bytes() const;
  bool operator==(const FieldSpec&) const = default;
};

// One trajectory (or one version) is one array per field. Order is significant.
using FieldSpecs = std::vector<FieldSpec>;

// Index of the field called `name`. Throws std::out_of_range naming the nearest fields.
std::size_t field_index(const FieldSpecs& specs, std::string_view name);

// Throws std::invalid_argument for: no fields, an empty or repeated name, a name over kMaxFieldName
// bytes, more than kMaxFieldDims dimensions, a negative extent, or a size that overflows.
void validate(const FieldSpecs& specs);

inline constexpr std::size_t kMaxFields = 512;
inline constexpr std::size_t kMaxFieldName = 111;
inline constexpr std::size_t kMaxFieldDims = 8;

}  // namespace gristmill
