#include "core/field_records.h"

#include <cstring>
#include <stdexcept>
#include <string>

namespace gristmill {

void write_field_records(const FieldSpecs& specs, std::span<FieldRecord> records) {
  for (std::size_t i = 0; i < specs.size(); ++i) {
    FieldRecord record{};
    std::memcpy(record.name, specs[i].name.data(), specs[i].name.size());
    record.dtype = static_cast<std::uint8_t>(specs[i].dtype);
    record.dims = static_cast<std::uint8_t>(specs[i].shape.size());
    for (std::size_t d = 0; d < specs[i].shape.size(); ++d) record.shape[d] = specs[i].shape[d];
    records[i] = record;
  }
}

FieldSpecs read_field_records(std::span<const FieldRecord> records) {
  FieldSpecs specs;
  specs.reserve(records.size());
  for (std::size_t i = 0; i < records.size(); ++i) {
    // One copy: what is checked below is what is used, whatever happens to the
    // segment meanwhile.
    FieldRecord record;
    std::memcpy(&record, &records[i], sizeof record);
    const std::string where = "field " + std::to_string(i);
    const std::size_t length = strnlen(record.name, sizeof record.name);
    if (length == sizeof record.name) throw std::invalid_argument(where + ": its name has no end");
    if (record.dtype > static_cast<std::uint8_t>(DType::kFloat64)) {
      throw std::invalid_argument(where + ": unknown dtype number " + std::to_string(record.dtype) +
                                  ", expected 0 to " + std::to_string(static_cast<int>(DType::kFloat64)));
    }
    if (record.dims > kMaxFieldDims) {
      throw std::invalid_argument(where + ": " + std::to_string(record.dims) +
                                  " dimensions, expected at most " + std::to_string(kMaxFieldDims));
    }
    FieldSpec spec;
    spec.name.assign(record.name, length);
    spec.dtype = static_cast<DType>(record.dtype);
    spec.shape.assign(record.shape, record.shape + record.dims);
    specs.push_back(std::move(spec));
  }
  validate(specs);
  return specs;
}

}  // namespace gristmill
