#include "core/box.h"

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstring>
#include <limits>
#include <new>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/event_count.h"
#include "core/fault_point.h"
#include "core/field_records.h"
#include "core/lease_table.h"
#include "core/process_identity.h"
#include "core/robust_lock.h"
#include "core/segment.h"

namespace gristmill {

// Why plain memcpy into and out of a slot is no data race
//
// The newest word only grows (its version does), all its stores and all loads named here are
// seq_cst, so they have one total order S. A reader with word w naming slot s does
//     R1 pin := s+1     R2 re-check: newest == w, else start over without having touched data
// A writer, holding the lock, with s not the newest slot, does
//     W1 (it or an earlier holder) newest := w' != w     W2 scan the pins     W3 write slot s
//  - If W2 sees R1's pin, the slot is not written (unless the reader is proved dead: it reads no
//    more).
//  - If W2 reads an older value than R1's, then W1 < W2 < R1 < R2 in S: R2 sees w' or later, and
//    the reader never touches the data.
//  - If W2 reads a newer value (the pin's release, or whatever its lease held later), that store
//    released after the last read, and W2 acquires it: the reads happen before W3.
// In the other direction the newest word's store releases the content, and R2 acquires it.

namespace {

constexpr std::size_t kFieldAlign = 64;
constexpr std::size_t kSlotAlign = 4096;  // so that neighbouring slots share neither line nor page
constexpr std::uint64_t kSlotMask = 7;
constexpr int kSlotBits = 3;
static_assert(Box::kSlots <= static_cast<int>(kSlotMask) + 1);

std::uint64_t pack_newest(std::uint64_t version, int slot) {
  return version << kSlotBits | static_cast<std::uint64_t>(slot);
}

struct Control {
  // Written by the creator before READY, and never again.
  std::uint64_t field_count = 0;
  std::uint64_t slot_bytes = 0;
  // version << 3 | slot. Written by the holder of `writer` only: the one truth of the box.
  alignas(64) std::atomic<std::uint64_t> newest{0};
  // Pins lie below this index, so a publish need not scan the whole table. Raised by readers
  // (before their pin), never lowered.
  alignas(64) std::atomic<std::int32_t> scan_limit{0};
  alignas(64) EventCount published;
  alignas(64) RobustLock writer;
  alignas(64) std::atomic<std::uint64_t> skipped{0};  // written by the holder of `writer` only
};

std::size_t round_up(std::size_t bytes, std::size_t align) { return (bytes + align - 1) / align * align; }

// payload │ Control │ Lease[kMaxReaders] │ FieldRecord[fields] │ slot 0 │ … │ slot 3
struct Geometry {
  std::vector<std::size_t> field_offsets;  // within a slot
  std::vector<std::size_t> field_bytes;
  std::size_t leases_at = 0, records_at = 0, slots_at = 0, slot_bytes = 0, total = 0;
};

// REQUIRES: validate(spec) passes.
Geometry geometry_of(const FieldSpecs& spec) {
  // Far below overflow, far above any machine.
  constexpr std::size_t kMost = std::size_t{1} << 46;
  Geometry g;
  for (const FieldSpec& field : spec) {
    g.field_offsets.push_back(g.slot_bytes);
    g.field_bytes.push_back(field.bytes());
    if (field.bytes() > kMost || g.slot_bytes > kMost) {
      throw std::invalid_argument("box: field '" + field.name + "' makes a version larger than " +
                                  std::to_string(kMost) + " bytes");
    }
    g.slot_bytes += round_up(field.bytes(), kFieldAlign);
  }
  g.slot_bytes = round_up(g.slot_bytes, kSlotAlign);
  g.leases_at = round_up(sizeof(Control), alignof(Control));
  g.records_at = g.leases_at + Box::kMaxReaders * sizeof(Lease);
  g.slots_at = round_up(g.records_at + spec.size() * sizeof(FieldRecord), kSlotAlign);
  g.total = g.slots_at + Box::kSlots * g.slot_bytes;
  return g;
}

std::uint64_t layout_hash() {
  const std::array<std::uint64_t, 8> layout = {
      sizeof(Control), sizeof(Lease),       Box::kSlots, Box::kMaxReaders,
      kFieldAlign,     sizeof(FieldRecord), kSlotAlign,  offsetof(Control, writer)};
  return hash_bytes(layout.data(), sizeof layout);
}

// Maps the pages (they are reserved already) now, instead of by one fault each when a publish or a
// reader first comes by: for 100 MiB those cost more than the copy. An old kernel just refuses.
void populate(void* begin, std::size_t bytes) {
#ifdef MADV_POPULATE_WRITE
  if (bytes > 0) ::madvise(begin, bytes, MADV_POPULATE_WRITE);
#else
  (void)begin;
  (void)bytes;
#endif
}

[[noreturn]] void corrupt(const std::string& name, const std::string& why) {
  throw SegmentError(SegmentError::Reason::kCorrupt, "box '" + name + "' is damaged: " + why);
}

}  // namespace

struct Box::Impl {
  Impl(Segment the_segment, FieldSpecs the_spec, Geometry the_geometry)
      : segment(std::move(the_segment)), spec(std::move(the_spec)), geometry(std::move(the_geometry)) {
    std::byte* payload = segment.payload();
    control = std::launder(reinterpret_cast<Control*>(payload));
    leases = LeaseTable(std::launder(reinterpret_cast<Lease*>(payload + geometry.leases_at)), kMaxReaders);
    slots = payload + geometry.slots_at;
    populate(slots, kSlots * geometry.slot_bytes);
  }

  std::byte* field(int slot, std::size_t index) const {
    return slots + static_cast<std::size_t>(slot) * geometry.slot_bytes + geometry.field_offsets[index];
  }

  void check_count(std::size_t given, const char* call) const {
    if (given == spec.size()) return;
    throw std::invalid_argument("box '" + segment.name() + "': " + call + " was given " +
                                std::to_string(given) + " fields, expected " + std::to_string(spec.size()));
  }

  int scan_limit() const {
    const int limit = control->scan_limit.load(std::memory_order_seq_cst);
    return limit < 0 || limit > kMaxReaders ? kMaxReaders : limit;
  }

  void raise_scan_limit(int limit) {
    std::int32_t now = control->scan_limit.load(std::memory_order_seq_cst);
    while (now < limit && !control->scan_limit.compare_exchange_weak(now, limit)) {
    }
  }

  // Bit s: slot s is pinned, by the living or the dead. W2 of the argument above.
  unsigned pinned() const {
    unsigned mask = 0;
    const int limit = scan_limit();
    for (int i = 0; i < limit; ++i) {
      const std::uint64_t pin = leases[i].value.load(std::memory_order_seq_cst);
      if (pin >= 1 && pin <= kSlots) mask |= 1u << (pin - 1);
    }
    return mask;
  }

  // Frees the leases of the dead that pin something. System calls: only when a pin is in the way.
  void reclaim_dead_pins() {
    const int limit = scan_limit();
    for (int i = 0; i < limit; ++i) {
      Lease& lease = leases[i];
      if (lease.value.load(std::memory_order_seq_cst) == 0) continue;
      std::uint64_t owner = lease.owner.load(std::memory_order_acquire);
      if (owner == 0 || !ProcessIdentity::unpack(owner).proved_dead()) continue;
      // Taking the lease first keeps out a reader that reclaims it at the same time; if this process
      // is killed in between, the lease is a dead one's again.
      if (lease.owner.compare_exchange_strong(owner, ProcessIdentity::self().pack())) {
        GRISTMILL_FAULT_POINT("box.reclaim.taken");
        leases.release(i);
      }
    }
  }

  // A slot that is neither the newest nor pinned by a living process, or -1.
  int choose_slot(int newest) {
    constexpr unsigned kAll = (1u << kSlots) - 1;
    const unsigned mine = 1u << newest;
    unsigned free = kAll & ~(pinned() | mine);
    if (free == 0) {
      reclaim_dead_pins();
      free = kAll & ~(pinned() | mine);
    }
    // The lowest: while nothing is pinned two slots are in use, and stay in the cache.
    return free == 0 ? -1 : __builtin_ctz(free);
  }

  Segment segment;
  FieldSpecs spec;
  Geometry geometry;
  Control* control = nullptr;
  LeaseTable leases;
  std::byte* slots = nullptr;
};

Box::Box(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Box::~Box() = default;

std::unique_ptr<Box> Box::create(const std::string& name, const FieldSpecs& spec) {
  validate(spec);
  Geometry geometry = geometry_of(spec);
  Segment segment = Segment::create(name, SegmentKind::kBox, layout_hash(), geometry.total);
  std::byte* payload = segment.payload();
  auto* control = new (payload) Control;
  control->field_count = spec.size();
  control->slot_bytes = geometry.slot_bytes;
  control->writer.init();
  for (int i = 0; i < kMaxReaders; ++i) {
    new (payload + geometry.leases_at + static_cast<std::size_t>(i) * sizeof(Lease)) Lease;
  }
  auto* records = reinterpret_cast<FieldRecord*>(payload + geometry.records_at);
  write_field_records(spec, {records, spec.size()});
  segment.mark_ready();
  return std::unique_ptr<Box>(new Box(std::make_unique<Impl>(std::move(segment), spec, std::move(geometry))));
}

std::unique_ptr<Box> Box::attach(const std::string& name, Deadline deadline) {
  Segment segment = Segment::attach(name, SegmentKind::kBox, layout_hash(), deadline);
  const std::byte* payload = segment.payload();
  const std::size_t fixed = geometry_of({}).records_at;
  if (segment.payload_bytes() < fixed) {
    corrupt(name, std::to_string(segment.payload_bytes()) + " bytes of payload, expected at least " +
                      std::to_string(fixed));
  }
  const auto* control = std::launder(reinterpret_cast<const Control*>(payload));
  const std::uint64_t fields = control->field_count;
  if (fields < 1 || fields > kMaxFields || segment.payload_bytes() < fixed + fields * sizeof(FieldRecord)) {
    corrupt(name, "it claims " + std::to_string(fields) + " fields");
  }
  FieldSpecs spec;
  Geometry geometry;
  try {
    spec = read_field_records({reinterpret_cast<const FieldRecord*>(payload + fixed), fields});
    geometry = geometry_of(spec);
  } catch (const std::invalid_argument& e) {
    corrupt(name, e.what());
  }
  if (geometry.total != segment.payload_bytes() || geometry.slot_bytes != control->slot_bytes) {
    corrupt(name, "its fields need " + std::to_string(geometry.total) + " bytes, but it has " +
                      std::to_string(segment.payload_bytes()));
  }
  const std::uint64_t slot = control->newest.load(std::memory_order_relaxed) & kSlotMask;
  if (slot >= kSlots) corrupt(name, "its newest slot is " + std::to_string(slot));
  return std::unique_ptr<Box>(
      new Box(std::make_unique<Impl>(std::move(segment), std::move(spec), std::move(geometry))));
}

std::size_t Box::bytes_needed(const FieldSpecs& spec) {
  validate(spec);
  return Segment::kHeaderBytes + geometry_of(spec).total;
}

const FieldSpecs& Box::spec() const { return impl_->spec; }
const std::string& Box::name() const { return impl_->segment.name(); }
void Box::unlink() noexcept { impl_->segment.unlink(); }

Box::PublishResult Box::publish(std::span<const std::byte* const> fields, Deadline deadline) {
  Impl& box = *impl_;
  Control& control = *box.control;
  box.check_count(fields.size(), "publish()");
  std::uint64_t version = 0;
  {
    // Held over the copy: writers have to take turns anyway, and readers never touch this lock. A
    // holder that died left the newest word as it was, so there is nothing to repair.
    const RobustGuard guard(control.writer, deadline);
    if (guard.outcome() == RobustLock::Outcome::kTimedOut) return {PublishOutcome::kTimedOut, 0};
    if (!guard.held()) return {PublishOutcome::kBroken, 0};
    GRISTMILL_FAULT_POINT("box.publish.locked");
    const std::uint64_t newest = control.newest.load(std::memory_order_seq_cst);
    const int newest_slot = static_cast<int>(newest & kSlotMask);
    if (newest_slot >= kSlots) return {PublishOutcome::kBroken, 0};
    const int slot = box.choose_slot(newest_slot);
    if (slot < 0) {
      control.skipped.store(control.skipped.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      return {PublishOutcome::kNoFreeSlot, 0};
    }
    GRISTMILL_FAULT_POINT("box.publish.chosen");
    for (std::size_t f = 0; f < fields.size(); ++f) {
      if (box.geometry.field_bytes[f] == 0) continue;
      std::memcpy(box.field(slot, f), fields[f], box.geometry.field_bytes[f]);
      GRISTMILL_FAULT_POINT("box.publish.field_copied");
    }
    version = (newest >> kSlotBits) + 1;
    GRISTMILL_FAULT_POINT("box.publish.copied");
    // Pairs with the readers' acquiring re-check (R2), and is W1 of later publishes.
    control.newest.store(pack_newest(version, slot), std::memory_order_seq_cst);
    GRISTMILL_FAULT_POINT("box.publish.stored");
  }
  GRISTMILL_FAULT_POINT("box.publish.unlocked");
  control.published.notify_all();
  return {PublishOutcome::kOk, version};
}

std::uint64_t Box::version() const {
  return impl_->control->newest.load(std::memory_order_acquire) >> kSlotBits;
}

std::optional<std::uint64_t> Box::watch(std::uint64_t seen, Deadline deadline) {
  if (!impl_->control->published.await(deadline, [&] { return version() > seen; })) return std::nullopt;
  return version();
}

Box::Pin Box::pin() {
  Impl& box = *impl_;
  thread_local int hint = 0;  // the lease this thread had last is warm, and most likely free
  const int index = box.leases.claim(true, hint);
  if (index < 0) {
    throw std::runtime_error("box '" + name() + "': all " + std::to_string(kMaxReaders) +
                             " pins are held by living processes; release some before pinning more");
  }
  hint = index;
  GRISTMILL_FAULT_POINT("box.pin.claimed");
  if (index >= box.scan_limit()) box.raise_scan_limit(index + 1);
  Lease& lease = box.leases[index];
  std::uint64_t word = box.control->newest.load(std::memory_order_seq_cst);
  while (true) {
    const std::uint64_t slot = word & kSlotMask;
    if (slot >= kSlots) {
      box.leases.release(index);
      throw std::runtime_error("box '" + name() + "' is damaged: its newest slot is " + std::to_string(slot));
    }
    GRISTMILL_FAULT_POINT("box.pin.loaded");
    lease.value.store(slot + 1, std::memory_order_seq_cst);  // R1
    GRISTMILL_FAULT_POINT("box.pin.stored");
    const std::uint64_t again = box.control->newest.load(std::memory_order_seq_cst);  // R2
    if (again == word) break;
    word = again;
  }
  Pin pin;
  pin.box_ = this;
  pin.owner_ = ProcessIdentity::self().pack();
  pin.version_ = word >> kSlotBits;
  pin.slot_ = static_cast<int>(word & kSlotMask);
  pin.lease_ = index;
  return pin;
}

std::uint64_t Box::read_into(std::span<std::byte* const> out) {
  Impl& box = *impl_;
  box.check_count(out.size(), "read_into()");
  const Pin held = pin();
  for (std::size_t f = 0; f < out.size(); ++f) {
    if (out[f] == nullptr || box.geometry.field_bytes[f] == 0) continue;
    std::memcpy(out[f], box.field(held.slot_, f), box.geometry.field_bytes[f]);
    GRISTMILL_FAULT_POINT("box.read.field_copied");
  }
  return held.version();
}

std::uint64_t Box::skipped_publishes() const {
  return impl_->control->skipped.load(std::memory_order_relaxed);
}

Box::Pin::Pin(Pin&& other) noexcept
    : box_(std::exchange(other.box_, nullptr)),
      owner_(other.owner_),
      version_(other.version_),
      slot_(other.slot_),
      lease_(other.lease_) {}

Box::Pin& Box::Pin::operator=(Pin&& other) noexcept {
  if (this != &other) {
    release();
    box_ = std::exchange(other.box_, nullptr);
    owner_ = other.owner_;
    version_ = other.version_;
    slot_ = other.slot_;
    lease_ = other.lease_;
  }
  return *this;
}

const std::byte* Box::Pin::field(std::size_t index) const {
  if (box_ == nullptr) throw std::logic_error("box: this pin was released");
  if (owner_ != ProcessIdentity::self().pack()) {
    throw std::logic_error("box '" + box_->name() +
                           "': this pin belongs to the parent process and may end with it; pin again here");
  }
  if (index >= box_->impl_->spec.size()) {
    throw std::out_of_range("box '" + box_->name() + "': field " + std::to_string(index) + " of " +
                            std::to_string(box_->impl_->spec.size()));
  }
  return box_->impl_->field(slot_, index);
}

void Box::Pin::release() {
  if (box_ == nullptr) return;
  Box* box = std::exchange(box_, nullptr);
  // In a forked child the lease is still the parent's, who reads on.
  if (owner_ != ProcessIdentity::self().pack()) return;
  GRISTMILL_FAULT_POINT("box.release.begin");
  box->impl_->leases.release(lease_);
}

}  // namespace gristmill
