#include "core/field_spec.h"

#include <algorithm>
#include <array>
#include <limits>
#include <stdexcept>

namespace gristmill {
namespace {

struct DTypeEntry {
  std::string_view name;
  std::size_t size;
};

// By the enumerator's value.
constexpr std::array<DTypeEntry, 10> kDTypes{{{"bool", 1},
                                              {"uint8", 1},
                                              {"int8", 1},
                                              {"int16", 2},
                                              {"int32", 4},
                                              {"int64", 8},
                                              {"float16", 2},
                                              {"bfloat16", 2},
                                              {"float32", 4},
                                              {"float64", 8}}};

const DTypeEntry& entry(DType dtype) {
  const auto index = static_cast<std::size_t>(dtype);
  if (index >= kDTypes.size()) {
    throw std::invalid_argument("dtype " + std::to_string(index) + " is unknown: expected 0 to " +
                                std::to_string(kDTypes.size() - 1));
  }
  return kDTypes[index];
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

std::string quoted(std::string_view text) { return "'" + std::string(text) + "'"; }

// elements × dtype size, or false when that is no std::int64_t.
bool checked_bytes(const FieldSpec& spec, std::int64_t* bytes) {
  std::int64_t total = static_cast<std::int64_t>(dtype_size(spec.dtype));
  bool empty = false;
  for (const std::int64_t extent : spec.shape) {
    if (extent == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(total, extent, &total)) {
      return false;
    }
  }
  *bytes = empty ? 0 : total;
  return true;
}

}  // namespace

std::size_t dtype_size(DType dtype) { return entry(dtype).size; }

std::string_view dtype_name(DType dtype) { return entry(dtype).name; }

DType dtype_from_name(std::string_view name) {
  for (std::size_t i = 0; i < kDTypes.size(); ++i) {
    if (kDTypes[i].name == name) return static_cast<DType>(i);
  }
  std::string message = "dtype " + quoted(name) + " is unknown: expected one of";
  for (std::size_t i = 0; i < kDTypes.size(); ++i) {
    message += (i == 0 ? " " : ", ") + std::string(kDTypes[i].name);
  }
  throw std::invalid_argument(message);
}

std::int64_t FieldSpec::elements() const {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

std::size_t FieldSpec::bytes() const { return static_cast<std::size_t>(elements()) * dtype_size(dtype); }

std::size_t field_index(const FieldSpecs& specs, std::string_view name) {
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].name == name) return i;
  }
  std::vector<std::string_view> names;
  for (const FieldSpec& spec : specs) names.push_back(spec.name);
  std::stable_sort(names.begin(), names.end(), [name](std::string_view a, std::string_view b) {
    return edit_distance(a, name) < edit_distance(b, name);
  });
  std::string message = "no field " + quoted(name);
  for (std::size_t i = 0; i < names.size() && i < 3; ++i) {
    message += (i == 0 ? ": the nearest are " : ", ") + quoted(names[i]);
  }
  throw std::out_of_range(message);
}

void validate(const FieldSpecs& specs) {
  if (specs.empty()) throw std::invalid_argument("no fields: expected at least one");
  if (specs.size() > kMaxFields) {
    throw std::invalid_argument(std::to_string(specs.size()) + " fields: expected at most " +
                                std::to_string(kMaxFields));
  }
  std::int64_t total = 0;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const FieldSpec& spec = specs[i];
    const std::string where = "field " + quoted(spec.name) + " (number " + std::to_string(i) + ")";
    if (spec.name.empty()) throw std::invalid_argument(where + " has no name");
    if (spec.name.size() > kMaxFieldName) {
      throw std::invalid_argument(where + " has a name of " + std::to_string(spec.name.size()) +
                                  " bytes: expected at most " + std::to_string(kMaxFieldName));
    }
    // Names are stored with a terminating zero.
    if (spec.name.find('\0') != std::string::npos) {
      throw std::invalid_argument("field number " + std::to_string(i) + " has a zero byte in its name");
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (specs[j].name == spec.name) {
        throw std::invalid_argument(where + " repeats the name of field number " + std::to_string(j));
      }
    }
    if (spec.shape.size() > kMaxFieldDims) {
      throw std::invalid_argument(where + " has " + std::to_string(spec.shape.size()) +
                                  " dimensions: expected at most " + std::to_string(kMaxFieldDims));
    }
    for (const std::int64_t extent : spec.shape) {
      if (extent < 0) {
        throw std::invalid_argument(where + " has the negative extent " + std::to_string(extent));
      }
    }
    std::int64_t bytes = 0;
    if (!checked_bytes(spec, &bytes) || __builtin_add_overflow(total, bytes, &total)) {
      throw std::invalid_argument(where + " is too large: its size in bytes, or that of all fields, " +
                                  "exceeds " + std::to_string(std::numeric_limits<std::int64_t>::max()));
    }
  }
}

}  // namespace gristmill
