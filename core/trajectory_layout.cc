#include "core/trajectory_layout.h"

#include <cstring>
#include <new>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>

#include "core/segment.h"

namespace gristmill {
namespace {

constexpr std::uint64_t kPage = 4096;
static_assert(Segment::kHeaderBytes % kPage == 0);
// Positions have 48 bits in a place word.
constexpr std::int64_t kMaxCapacity = std::int64_t{1} << 32;
// How much longer than its places a mirrored ring may always be.
constexpr std::uint64_t kMirrorSlack = std::uint64_t{1} << 18;

// Sums and products that turn into an error instead of wrapping.
struct Checked {
  std::uint64_t value = 0;
  bool overflow = false;

  Checked& add(std::uint64_t n) {
    overflow |= __builtin_add_overflow(value, n, &value);
    return *this;
  }
  Checked& multiply(std::uint64_t n) {
    overflow |= __builtin_mul_overflow(value, n, &value);
    return *this;
  }
  Checked& round_up(std::uint64_t unit) {
    add(unit - 1);
    value -= value % unit;
    return *this;
  }
};

RingLayout ring_of(const FieldSpec& field, std::uint64_t capacity, Checked* end) {
  RingLayout ring;
  ring.bytes = field.bytes();
  ring.places = capacity;
  ring.offset = end->value;
  if (ring.bytes == 0) return ring;
  // The fewest places that fill whole pages.
  const std::uint64_t unit = kPage / std::gcd(kPage, static_cast<std::uint64_t>(ring.bytes));
  const Checked places = Checked{capacity}.round_up(unit);
  Checked mirrored = Checked{places.value, places.overflow}.multiply(ring.bytes);
  Checked spilling = Checked{2 * capacity - 1}.multiply(ring.bytes).round_up(kPage);
  ring.mirrored = !mirrored.overflow && mirrored.value <= Checked{spilling.value}.add(kMirrorSlack).value;
  if (ring.mirrored) ring.places = places.value;
  const Checked& chosen = ring.mirrored ? mirrored : spilling;
  ring.ring_bytes = chosen.value;
  end->overflow |= chosen.overflow;
  end->add(chosen.value);
  return ring;
}

std::uint64_t geometry_hash(const QueueLayout& layout, std::span<const FieldRecord> records) {
  const std::uint64_t numbers[] = {layout.capacity, records.size(), layout.payload_bytes};
  return hash_bytes(records.data(), records.size_bytes(), hash_bytes(numbers, sizeof numbers));
}

}  // namespace

QueueLayout QueueLayout::of(const FieldSpecs& spec, std::int64_t capacity) {
  validate(spec);
  if (capacity < 1 || capacity > kMaxCapacity) {
    throw std::invalid_argument("a queue's capacity of " + std::to_string(capacity) +
                                " trajectories is out of range: expected 1 to " +
                                std::to_string(kMaxCapacity));
  }
  QueueLayout layout;
  layout.spec = spec;
  layout.capacity = static_cast<std::uint64_t>(capacity);
  Checked end{sizeof(QueueControl)};
  layout.leases_offset = end.round_up(64).value;
  layout.words_offset = end.add(kLeases * sizeof(Lease)).value;
  end.add(layout.capacity * sizeof(std::uint64_t)).round_up(kPage);
  for (const FieldSpec& field : spec) layout.rings.push_back(ring_of(field, layout.capacity, &end));
  if (end.overflow) {
    throw std::invalid_argument("a queue of " + std::to_string(capacity) +
                                " trajectories of this spec has a size that overflows: choose a smaller "
                                "capacity or smaller fields");
  }
  layout.payload_bytes = end.value;
  return layout;
}

std::uint64_t QueueLayout::hash() {
  const std::uint64_t facts[] = {2,  // raise it when the meaning of a word changes
                                 sizeof(QueueControl),
                                 sizeof(FieldRecord),
                                 sizeof(Lease),
                                 sizeof(RobustLock),
                                 kLeases,
                                 kMaxFields,
                                 kPage,
                                 kMirrorSlack};
  return hash_bytes(facts, sizeof facts);
}

void QueueLayout::write(std::byte* payload) const {
  auto* control = new (payload) QueueControl();
  control->capacity = capacity;
  control->field_count = spec.size();
  const std::span records(control->fields, spec.size());
  write_field_records(spec, records);
  control->geometry_hash = geometry_hash(*this, records);
  control->lock.init();
  for (int i = 0; i < kLeases; ++i) new (payload + leases_offset + i * sizeof(Lease)) Lease();
  for (std::uint64_t i = 0; i < capacity; ++i) {
    new (payload + words_offset + i * sizeof(std::uint64_t)) std::atomic<std::uint64_t>(0);
  }
}

QueueLayout QueueLayout::read(const std::byte* payload, std::size_t payload_bytes) {
  if (payload_bytes < sizeof(QueueControl)) {
    throw std::invalid_argument(std::to_string(payload_bytes) + " bytes are no trajectory queue");
  }
  // Each word is read once: what is checked is what is used.
  std::uint64_t numbers[3];
  static_assert(offsetof(QueueControl, geometry_hash) == 2 * sizeof(std::uint64_t));
  std::memcpy(numbers, payload, sizeof numbers);
  const auto [capacity, field_count, hash] = numbers;
  if (field_count < 1 || field_count > kMaxFields) {
    throw std::invalid_argument(std::to_string(field_count) + " fields: expected 1 to " +
                                std::to_string(kMaxFields));
  }
  std::vector<FieldRecord> records(field_count);
  std::memcpy(records.data(), payload + offsetof(QueueControl, fields), field_count * sizeof(FieldRecord));
  QueueLayout layout = of(read_field_records(records), static_cast<std::int64_t>(capacity));
  if (layout.payload_bytes != payload_bytes) {
    throw std::invalid_argument("its fields and capacity need " + std::to_string(layout.payload_bytes) +
                                " bytes, but it has " + std::to_string(payload_bytes));
  }
  if (hash != geometry_hash(layout, records)) {
    throw std::invalid_argument("the checksum of its fields and capacity does not fit");
  }
  return layout;
}

}  // namespace gristmill
