#pragma once

// Where everything of a box lies in its segment, and what its scalars are.
//
//   payload │ BoxControl │ Lease[256] │ FieldRecord[arrays] │ ScalarRecord[scalars]
//           │ block 0 … 3 (8-byte words, all scalars of one version)
//           │ EventCount published (a page of its own) │ slot 0 … 3 (all arrays)

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/event_count.h"
#include "core/field_records.h"
#include "core/field_spec.h"
#include "core/lease_table.h"
#include "core/robust_lock.h"

namespace gristmill {

// Values are stored in shared memory: append only.
enum class ScalarType : std::uint8_t {
  kBool = 0,
  kInt64 = 1,
  kFloat64 = 2,
  kText = 3,     // UTF-8, up to `capacity` bytes
  kBytes = 4,    // up to `capacity` bytes
  kTime = 5,     // microseconds since 1970 of a clock without a zone
  kTimeUtc = 6,  // microseconds since 1970, UTC
};
std::string_view scalar_type_name(ScalarType type);

// A small value. One 8-byte word; text and bytes: a word with the length, then the content.
struct ScalarSpec {
  std::string name;
  ScalarType type = ScalarType::kInt64;
  std::uint32_t capacity = 0;  // in bytes, of text and bytes only

  bool sized() const { return type == ScalarType::kText || type == ScalarType::kBytes; }
  std::size_t words() const { return sized() ? 1 + (capacity + 7) / 8 : 1; }
  bool operator==(const ScalarSpec&) const = default;
};
using ScalarSpecs = std::vector<ScalarSpec>;

struct ScalarRecord {
  char name[kMaxFieldName + 1];
  std::uint8_t type;
  std::uint8_t zero[3];
  std::uint32_t capacity;
};

inline constexpr std::uint32_t kMaxScalarCapacity = 4096;
inline constexpr int kBoxSlots = 4;
inline constexpr int kBoxBlocks = 4;
inline constexpr int kBoxReaders = 256;
inline constexpr std::uint64_t kBoxSlotMask = 7;
inline constexpr int kBoxSlotBits = 3;

struct BoxControl {
  // Written by the creator before READY, and never again.
  std::uint64_t array_count = 0;
  std::uint64_t scalar_count = 0;
  std::uint64_t slot_bytes = 0;
  // version << 3 | slot. Written by the holder of `writer` only: the one truth of the box.
  alignas(64) std::atomic<std::uint64_t> newest{0};
  // Counts the times that a writer began to fill each slot. Written by the holder of `arrays` only.
  std::atomic<std::uint64_t> filled[kBoxSlots]{};
  // Pins lie below this index, so a publish need not scan the whole table. Raised by readers
  // (before their pin), never lowered.
  alignas(64) std::atomic<std::int32_t> scan_limit{0};
  // The turn of whoever fills a slot: held over its copy. Taken before `writer`.
  alignas(64) RobustLock arrays;
  // Held for the nanoseconds in which a version is stored.
  alignas(64) RobustLock writer;
  alignas(64) std::atomic<std::uint64_t> skipped{0};  // written by the holder of `arrays` only
};

struct BoxLayout {
  FieldSpecs arrays;
  ScalarSpecs scalars;
  std::vector<std::size_t> array_offsets;  // within a slot, bytes
  std::vector<std::size_t> array_bytes;
  std::vector<std::size_t> scalar_words;  // first word of each, within a block
  std::size_t words = 0;                  // of a block
  std::size_t block_stride = 0;           // in words
  std::size_t leases_at = 0, records_at = 0, scalars_at = 0, blocks_at = 0, published_at = 0, slots_at = 0;
  std::size_t slot_bytes = 0, total = 0;

  // Throws std::invalid_argument naming the field: what validate() refuses, a name used twice, no field
  // at all, a capacity of 0 or above kMaxScalarCapacity, or a size beyond any machine's.
  static BoxLayout of(const FieldSpecs& arrays, const ScalarSpecs& scalars);
  // From a segment's payload that `name` names in errors. Trusts nothing. Throws SegmentError (kCorrupt).
  static BoxLayout read(const std::string& name, const std::byte* payload, std::size_t bytes);
  void write_records(std::byte* payload) const;
};

std::uint64_t box_layout_hash();

}  // namespace gristmill
