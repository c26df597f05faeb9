#include "core/box_layout.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <new>
#include <stdexcept>

#include "core/segment.h"
#include "core/shared_page.h"

namespace gristmill {
namespace {

constexpr std::size_t kArrayAlign = 64;
constexpr std::size_t kSlotAlign = 4096;  // so that neighbouring slots share neither line nor page
// Far below overflow, far above any machine.
constexpr std::size_t kMost = std::size_t{1} << 46;

std::size_t round_up(std::size_t bytes, std::size_t align) { return (bytes + align - 1) / align * align; }

[[noreturn]] void corrupt(const std::string& name, const std::string& why) {
  throw SegmentError(SegmentError::Reason::kCorrupt, "box '" + name + "' is damaged: " + why);
}

void check_scalars(const FieldSpecs& arrays, const ScalarSpecs& scalars) {
  if (scalars.size() > kMaxFields) {
    throw std::invalid_argument(std::to_string(scalars.size()) + " fields: expected at most " +
                                std::to_string(kMaxFields));
  }
  for (std::size_t i = 0; i < scalars.size(); ++i) {
    const ScalarSpec& scalar = scalars[i];
    const std::string where = "field '" + scalar.name + "'";
    if (scalar.name.empty() || scalar.name.size() > kMaxFieldName ||
        scalar.name.find('\0') != std::string::npos) {
      throw std::invalid_argument(where + ": expected a name of 1 to " + std::to_string(kMaxFieldName) +
                                  " bytes, none of them zero");
    }
    if (scalar.sized() && (scalar.capacity < 1 || scalar.capacity > kMaxScalarCapacity)) {
      throw std::invalid_argument(where + " has a capacity of " + std::to_string(scalar.capacity) +
                                  " bytes: expected 1 to " + std::to_string(kMaxScalarCapacity) +
                                  " (an array of uint8 holds more)");
    }
    bool repeated = false;
    for (std::size_t j = 0; j < i; ++j) repeated = repeated || scalars[j].name == scalar.name;
    for (const FieldSpec& array : arrays) repeated = repeated || array.name == scalar.name;
    if (repeated) throw std::invalid_argument(where + " is there twice");
  }
}

ScalarSpecs read_scalars(const ScalarRecord* records, std::size_t count) {
  ScalarSpecs scalars;
  for (std::size_t i = 0; i < count; ++i) {
    ScalarRecord record;  // one copy: what is checked is what is used
    std::memcpy(&record, records + i, sizeof record);
    const std::size_t length = strnlen(record.name, sizeof record.name);
    if (length == sizeof record.name || record.type > static_cast<std::uint8_t>(ScalarType::kTimeUtc)) {
      throw std::invalid_argument("scalar " + std::to_string(i) + " has no end of its name, or is of type " +
                                  std::to_string(record.type));
    }
    scalars.push_back(
        {std::string(record.name, length), static_cast<ScalarType>(record.type), record.capacity});
  }
  return scalars;
}

}  // namespace

std::string_view scalar_type_name(ScalarType type) {
  constexpr std::array<std::string_view, 7> kNames = {"bool",  "int",      "float",       "str",
                                                      "bytes", "datetime", "datetime_utc"};
  return kNames.at(static_cast<std::size_t>(type));
}

BoxLayout BoxLayout::of(const FieldSpecs& arrays, const ScalarSpecs& scalars) {
  if (scalars.empty() || !arrays.empty()) validate(arrays);
  check_scalars(arrays, scalars);
  BoxLayout l;
  l.arrays = arrays;
  l.scalars = scalars;
  for (const FieldSpec& array : arrays) {
    l.array_offsets.push_back(l.slot_bytes);
    l.array_bytes.push_back(array.bytes());
    if (array.bytes() > kMost || l.slot_bytes > kMost) {
      throw std::invalid_argument("box: field '" + array.name + "' makes a version larger than " +
                                  std::to_string(kMost) + " bytes");
    }
    l.slot_bytes += round_up(array.bytes(), kArrayAlign);
  }
  l.slot_bytes = round_up(l.slot_bytes, kSlotAlign);
  for (const ScalarSpec& scalar : scalars) {
    l.scalar_words.push_back(l.words);
    l.words += scalar.words();
  }
  l.block_stride = round_up(l.words * 8, kArrayAlign) / 8;
  l.leases_at = round_up(sizeof(BoxControl), alignof(BoxControl));
  l.records_at = l.leases_at + kBoxReaders * sizeof(Lease);
  l.scalars_at = l.records_at + arrays.size() * sizeof(FieldRecord);
  l.blocks_at = round_up(l.scalars_at + scalars.size() * sizeof(ScalarRecord), kArrayAlign);
  l.published_at = round_up(l.blocks_at + kBoxBlocks * l.block_stride * 8, kSlotAlign);
  l.slots_at = l.published_at + SharedPage::kBytes;
  l.total = l.slots_at + kBoxSlots * l.slot_bytes;
  return l;
}

BoxLayout BoxLayout::read(const std::string& name, const std::byte* payload, std::size_t bytes) {
  const std::size_t fixed = round_up(sizeof(BoxControl), alignof(BoxControl)) + kBoxReaders * sizeof(Lease);
  if (bytes < fixed) {
    corrupt(name, std::to_string(bytes) + " bytes of payload, expected at least " + std::to_string(fixed));
  }
  const auto* control = std::launder(reinterpret_cast<const BoxControl*>(payload));
  const std::uint64_t arrays = control->array_count, scalars = control->scalar_count;
  if (arrays > kMaxFields || scalars > kMaxFields || arrays + scalars < 1 ||
      bytes < fixed + arrays * sizeof(FieldRecord) + scalars * sizeof(ScalarRecord)) {
    corrupt(name,
            "it claims " + std::to_string(arrays) + " arrays and " + std::to_string(scalars) + " scalars");
  }
  BoxLayout layout;
  try {
    FieldSpecs specs;
    if (arrays > 0)
      specs = read_field_records({reinterpret_cast<const FieldRecord*>(payload + fixed), arrays});
    layout =
        of(specs,
           read_scalars(reinterpret_cast<const ScalarRecord*>(payload + fixed + arrays * sizeof(FieldRecord)),
                        scalars));
  } catch (const std::invalid_argument& e) {
    corrupt(name, e.what());
  }
  if (layout.total != bytes || layout.slot_bytes != control->slot_bytes) {
    corrupt(name, "its fields need " + std::to_string(layout.total) + " bytes, but it has " +
                      std::to_string(bytes));
  }
  const std::uint64_t slot = control->newest.load(std::memory_order_relaxed) & kBoxSlotMask;
  if (slot >= kBoxSlots) corrupt(name, "its newest slot is " + std::to_string(slot));
  return layout;
}

void BoxLayout::write_records(std::byte* payload) const {
  write_field_records(arrays, {reinterpret_cast<FieldRecord*>(payload + records_at), arrays.size()});
  auto* records = reinterpret_cast<ScalarRecord*>(payload + scalars_at);
  for (std::size_t i = 0; i < scalars.size(); ++i) {
    ScalarRecord record{};
    std::memcpy(record.name, scalars[i].name.data(), scalars[i].name.size());
    record.type = static_cast<std::uint8_t>(scalars[i].type);
    record.capacity = scalars[i].capacity;
    records[i] = record;
  }
}

std::uint64_t box_layout_hash() {
  const std::array<std::uint64_t, 13> layout = {sizeof(BoxControl),
                                                SharedPage::kBytes,
                                                sizeof(Lease),
                                                kBoxSlots,
                                                kBoxBlocks,
                                                kBoxReaders,
                                                kArrayAlign,
                                                sizeof(FieldRecord),
                                                sizeof(ScalarRecord),
                                                kSlotAlign,
                                                offsetof(BoxControl, arrays),
                                                offsetof(BoxControl, writer),
                                                sizeof(RobustLock)};
  return hash_bytes(layout.data(), sizeof layout);
}

}  // namespace gristmill
