#pragma once

// What lies where in a trajectory queue's segment, and what each shared word means.
//
//   payload │ QueueControl │ leases │ place words │ ring of field 0 │ ring of field 1 │ …
//
// Positions count trajectories for ever. Place p is described by the word at p mod capacity and, in
// ring f, held at p mod places_f. A word names its position, so that one of an earlier lap is never
// taken for it, and freeing places is a single store of head.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/event_count.h"
#include "core/field_records.h"
#include "core/field_spec.h"
#include "core/lease_table.h"
#include "core/robust_lock.h"

namespace gristmill {

enum class PlaceState : std::uint64_t {
  kNone = 0,
  kClaimed = 1,    // its claimant, who holds the lease in the word, copies
  kReady = 2,      // committed
  kAbandoned = 3,  // its claimant died; the next put takes it
  kSkipped = 4,    // abandoned, and passed over by the consumer after close()
};

// position (48 bits) │ 1 bit spare │ lease (12 bits) │ state (3 bits)
struct Place {
  std::uint64_t position = 0;
  int lease = 0;
  PlaceState state = PlaceState::kNone;

  std::uint64_t pack() const {
    return position << 16 | static_cast<std::uint64_t>(lease) << 3 | static_cast<std::uint64_t>(state);
  }
  static Place unpack(std::uint64_t word) {
    return {word >> 16, static_cast<int>(word >> 3 & 0xFFF), static_cast<PlaceState>(word & 7)};
  }
};

struct QueueControl {
  // Geometry: the creator, before READY. Whoever attaches copies and checks it once.
  std::uint64_t capacity = 0;
  std::uint64_t field_count = 0;
  std::uint64_t geometry_hash = 0;
  FieldRecord fields[kMaxFields] = {};

  // The holder of the lock writes tail's position, the place words (but kReady: their claimant;
  // kSkipped: the consumer, after close), and:
  alignas(64) RobustLock lock;
  // position << 1 | closed. close() sets the bit without the lock, so the holder moves it by
  // compare-exchange: nothing is claimed once the bit is set.
  alignas(64) std::atomic<std::uint64_t> tail{0};
  std::atomic<std::uint64_t> abandoned{0};  // places in that state; a hint, recounted in repair
  std::atomic<std::uint64_t> refilled{0};   // abandoned places claimed again, so far

  // The consumer process:
  alignas(64) std::atomic<std::uint64_t> head{0};  // the oldest place not released
  std::atomic<std::uint64_t> consumer{0};          // ProcessIdentity::pack(); by compare-exchange
  std::atomic<std::uint64_t> wanted{0};            // it waits for the places below this one
  std::atomic<std::uint64_t> skipped{0};
  std::atomic<std::uint64_t> get_waits{0};

  // Anyone:
  alignas(64) EventCount space;  // head moved, or a place was abandoned, or closed
  std::atomic<std::uint64_t> put_waits{0};
  alignas(64) EventCount ready;  // places became ready, or closed
};

// One field's ring.
struct RingLayout {
  std::size_t bytes = 0;       // of one trajectory
  std::uint64_t places = 0;    // length of the ring
  std::uint64_t offset = 0;    // in the payload, on a page
  std::size_t ring_bytes = 0;  // in the segment, whole pages; 0 for a field of no bytes
  // Mapped twice in a row, so that every run is contiguous. A field whose size would make such a
  // ring, a whole number of pages, more than twice as long as needed is held without: `places` is
  // capacity, capacity - 1 more lie behind them, and the consumer copies a run's part beyond the end
  // there.
  bool mirrored = true;
};

struct QueueLayout {
  static constexpr int kLeases = 256;

  FieldSpecs spec;
  std::uint64_t capacity = 0;
  std::uint64_t leases_offset = 0;
  std::uint64_t words_offset = 0;
  std::vector<RingLayout> rings;
  std::size_t payload_bytes = 0;

  // Throws std::invalid_argument for a bad spec or capacity, or a total that overflows.
  static QueueLayout of(const FieldSpecs& spec, std::int64_t capacity);
  // Identifies the structures above; another build's may differ.
  static std::uint64_t hash();

  // In a fresh payload of payload_bytes zeros.
  void write(std::byte* payload) const;
  // From a segment's payload; trusts nothing in it. Throws std::invalid_argument.
  static QueueLayout read(const std::byte* payload, std::size_t payload_bytes);
};

}  // namespace gristmill
