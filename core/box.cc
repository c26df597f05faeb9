#include "core/box.h"

#include <sys/mman.h>

#include <new>
#include <utility>

#include "core/box_impl.h"
#include "core/shared_copy.h"

namespace gristmill {

// Why a pinned slot may be read with plain loads
//
// The newest word only grows (its version does). Let W1 be the seq_cst store of a newest word that
// names another slot than s, after one that named s; all later stores of it name other slots than s,
// until an array writer fills s again. A reader that found s named does
//     R1 pin := s+1     R2 re-check: newest still names s, else start over without having touched data
// A writer, holding `arrays`, with s not the newest slot, does
//     W1 (it or an earlier holder)     W2 scan the pins     W3 write slot s     W4 newest names s
// R1, R2, W1, W2 and W4 are seq_cst and have one total order S.
//  - If W2 sees R1's pin, the slot is not written (unless the reader is proved dead: it reads no
//    more).
//  - If W2 reads an older value than R1's, then W1 < W2 < R1 < R2 in S: R2 sees W1 or a later word.
//    That names another slot, and the reader never touches the data; or it is W4 or later, and the
//    reader sees the new content of s, whole.
//  - If W2 reads a newer value (the pin's release, or whatever its lease held later), that store
//    released after the last read, and W2 acquires it: the reads happen before W3.
// In the other direction the newest word's store releases the content, and R2 acquires it. Writers of
// scalars store the newest word with release only: they leave the slot as it is, and follow the last
// array writer through `writer`.
//
// Why a copy without a pin is whole: filled[s] was F, then newest named s, then the copy, then
// filled[s] was still F. Nobody began to fill s meanwhile (who does counts first), and nobody was at
// it at the beginning: s was the newest slot, whose filling had ended. Data words are copied by
// shared_copy.h, which leaves no race.

namespace {

// Maps the pages (they are reserved already) now, instead of by one fault each when a publish or a
// reader first comes by: for 100 MiB those cost more than the copy. An old kernel just refuses.
void populate(void* begin, std::size_t bytes, bool read_only) {
#if defined(MADV_POPULATE_WRITE) && defined(MADV_POPULATE_READ)
  if (bytes > 0) ::madvise(begin, bytes, read_only ? MADV_POPULATE_READ : MADV_POPULATE_WRITE);
#else
  (void)begin;
  (void)bytes;
  (void)read_only;
#endif
}

bool gives(std::span<const std::byte* const> arrays) {
  for (const std::byte* array : arrays) {
    if (array != nullptr) return true;
  }
  return false;
}

Box::PublishOutcome outcome_of(RobustLock::Outcome outcome) {
  switch (outcome) {
    case RobustLock::Outcome::kLocked:
    case RobustLock::Outcome::kOwnerDied:
      return Box::PublishOutcome::kOk;  // there is nothing to repair: what a dead writer left is nobody's
    case RobustLock::Outcome::kTimedOut:
      return Box::PublishOutcome::kTimedOut;
    case RobustLock::Outcome::kBroken:
      break;
  }
  return Box::PublishOutcome::kBroken;
}

}  // namespace

Box::Impl::Impl(Segment the_segment, BoxLayout the_layout, Access access)
    : segment(std::move(the_segment)),
      layout(std::move(the_layout)),
      read_only(access == Access::kReadOnly),
      spin_budget(usable_cores()) {
  std::byte* payload = segment.payload();
  control = std::launder(reinterpret_cast<BoxControl*>(payload));
  leases = LeaseTable(std::launder(reinterpret_cast<Lease*>(payload + layout.leases_at)), kMaxReaders);
  blocks = std::launder(reinterpret_cast<std::atomic<std::uint64_t>*>(payload + layout.blocks_at));
  slots = payload + layout.slots_at;
  std::byte* waiting = payload + layout.published_at;
  if (read_only) {
    page = SharedPage::map(segment.fd(), Segment::kHeaderBytes + layout.published_at, segment.lost_flag());
    waiting = page ? page->data() : nullptr;
  }
  if (waiting != nullptr) published = std::launder(reinterpret_cast<EventCount*>(waiting));
  populate(slots, kSlots * layout.slot_bytes, read_only);
}

void Box::Impl::check_count(std::size_t given, const char* call) const {
  if (given == layout.arrays.size()) return;
  throw std::invalid_argument("box '" + segment.name() + "': " + call + " was given " +
                              std::to_string(given) + " fields, expected " +
                              std::to_string(layout.arrays.size()));
}

void Box::Impl::check_words(std::size_t given, const char* call) const {
  if (given == 0 || given == layout.words) return;
  throw std::invalid_argument("box '" + segment.name() + "': " + call + " was given room for " +
                              std::to_string(given) + " words, expected none or all " +
                              std::to_string(layout.words));
}

// Bit s: slot s is pinned, by the living or the dead. W2 of the argument above.
unsigned Box::Impl::pinned() const {
  unsigned mask = 0;
  const int limit = scan_limit();
  for (int i = 0; i < limit; ++i) {
    const std::uint64_t pin = leases[i].value.load(std::memory_order_seq_cst);
    if (pin >= 1 && pin <= kSlots) mask |= 1u << (pin - 1);
  }
  return mask;
}

// Frees the leases of the dead that pin something. System calls: only when a pin is in the way.
void Box::Impl::reclaim_dead_pins() {
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
int Box::Impl::choose_slot(int newest) {
  constexpr unsigned kAll = (1u << kSlots) - 1;
  const unsigned mine = 1u << newest;
  unsigned free = kAll & ~(pinned() | mine);
  if (free == 0) {
    reclaim_dead_pins();
    free = kAll & ~(pinned() | mine);
  }
  // In turn: whoever copies without a pin then has the longest time for it.
  for (int step = 1; step < kSlots; ++step) {
    const int slot = (newest + step) % kSlots;
    if ((free >> slot & 1) != 0) return slot;
  }
  return -1;
}

int Box::Impl::fill_slot(std::span<const std::byte* const> given) {
  const int newest = slot_of(control->newest.load(std::memory_order_seq_cst));
  if (newest >= kSlots) return -1;  // damaged since the caller looked
  const int slot = choose_slot(newest);
  if (slot < 0) return -1;
  GRISTMILL_FAULT_POINT("box.publish.chosen");
  // SYNC POINT: before any word of the content; a copy without a pin that sees one sees this too.
  control->filled[slot].fetch_add(1, std::memory_order_seq_cst);
  GRISTMILL_FAULT_POINT("box.publish.counted");
  for (std::size_t f = 0; f < given.size(); ++f) {
    if (layout.array_bytes[f] == 0) continue;
    // Nobody writes the newest slot while `arrays` is held.
    const std::byte* from = given[f] != nullptr ? given[f] : field(newest, f);
    copy_to_shared(field(slot, f), from, layout.array_bytes[f]);
    GRISTMILL_FAULT_POINT("box.publish.field_copied");
  }
  return slot;
}

std::uint64_t Box::Impl::store_version(std::span<const Words> scalars, int slot) {
  const std::uint64_t newest = control->newest.load(std::memory_order_relaxed);
  const std::uint64_t version = version_of(newest) + 1;
  const std::atomic<std::uint64_t>* from = block(version - 1);
  std::atomic<std::uint64_t>* to = block(version);
  // SYNC POINT: each store releases; see copy_words.
  for (std::size_t i = 0; i < layout.words; ++i) {
    to[i].store(from[i].load(std::memory_order_relaxed), std::memory_order_release);
  }
  for (const Words& scalar : scalars) {
    for (std::size_t i = 0; i < scalar.values.size(); ++i) {
      to[scalar.first + i].store(scalar.values[i], std::memory_order_release);
      GRISTMILL_FAULT_POINT("box.update.word");
    }
  }
  GRISTMILL_FAULT_POINT("box.publish.copied");
  const std::uint64_t next =
      version << kBoxSlotBits | (slot >= 0 ? static_cast<std::uint64_t>(slot) : newest & kBoxSlotMask);
  // Pairs with the readers' acquiring loads (R2); with a slot it is W1 of later publishes.
  control->newest.store(next, slot >= 0 ? std::memory_order_seq_cst : std::memory_order_release);
  GRISTMILL_FAULT_POINT("box.publish.stored");
  return version;
}

Box::PublishResult Box::Impl::refuse_slot() {
  control->skipped.store(control->skipped.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  return {PublishOutcome::kNoFreeSlot, 0};
}

// One wake, however many watch: see Box::watch.
void Box::Impl::wake() { published->notify(1); }

Box::Box(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)),
      newest_(&impl_->control->newest),
      blocks_(impl_->blocks),
      block_stride_(impl_->layout.block_stride),
      lost_(impl_->segment.lost_flag()) {
  for (std::size_t i = 0; i < impl_->layout.scalars.size(); ++i) {
    places_.push_back({impl_->layout.scalar_words[i], impl_->layout.scalars[i].type});
  }
}
Box::~Box() = default;

std::unique_ptr<Box> Box::create(const std::string& name, const FieldSpecs& arrays,
                                 const ScalarSpecs& scalars) {
  BoxLayout layout = BoxLayout::of(arrays, scalars);
  Segment segment = Segment::create(name, SegmentKind::kBox, box_layout_hash(), layout.total);
  std::byte* payload = segment.payload();
  auto* control = new (payload) BoxControl;
  control->array_count = arrays.size();
  control->scalar_count = scalars.size();
  control->slot_bytes = layout.slot_bytes;
  control->arrays.init();
  control->writer.init();
  for (int i = 0; i < kMaxReaders; ++i) {
    new (payload + layout.leases_at + static_cast<std::size_t>(i) * sizeof(Lease)) Lease;
  }
  for (std::size_t i = 0; i < kBoxBlocks * layout.block_stride; ++i) {
    new (payload + layout.blocks_at + i * 8) std::atomic<std::uint64_t>(0);
  }
  new (payload + layout.published_at) EventCount;
  layout.write_records(payload);
  segment.mark_ready();
  return std::unique_ptr<Box>(
      new Box(std::make_unique<Impl>(std::move(segment), std::move(layout), Access::kReadWrite)));
}

std::unique_ptr<Box> Box::attach(const std::string& name, Deadline deadline, Access access) {
  Segment segment =
      Segment::attach(name, SegmentKind::kBox, box_layout_hash(), deadline,
                      access == Access::kReadOnly ? Segment::Access::kReadOnly : Segment::Access::kReadWrite);
  BoxLayout layout = BoxLayout::read(name, segment.payload(), segment.payload_bytes());
  return std::unique_ptr<Box>(new Box(std::make_unique<Impl>(std::move(segment), std::move(layout), access)));
}

std::size_t Box::bytes_needed(const FieldSpecs& arrays, const ScalarSpecs& scalars) {
  return Segment::kHeaderBytes + BoxLayout::of(arrays, scalars).total;
}

const FieldSpecs& Box::spec() const { return impl_->layout.arrays; }
const ScalarSpecs& Box::scalars() const { return impl_->layout.scalars; }
std::size_t Box::first_word(std::size_t scalar) const { return impl_->layout.scalar_words.at(scalar); }
std::size_t Box::words() const { return impl_->layout.words; }
const std::string& Box::name() const { return impl_->segment.name(); }
bool Box::read_only() const { return impl_->read_only; }
void Box::unlink() noexcept { impl_->segment.unlink(); }

Box::PublishResult Box::publish(std::span<const std::byte* const> fields, Deadline deadline) {
  impl_->check_count(fields.size(), "publish()");
  return update({}, fields, deadline);
}

Box::PublishResult Box::update(std::span<const Words> scalars, std::span<const std::byte* const> arrays,
                               Deadline deadline) {
  Impl& box = *impl_;
  BoxControl& control = *box.control;
  if (!arrays.empty()) box.check_count(arrays.size(), "update()");
  if (!gives(arrays)) return update_scalars(scalars, deadline);
  box.check_writable("writing");
  if (slot_of(control.newest.load(std::memory_order_relaxed)) >= kSlots) return {PublishOutcome::kBroken, 0};
  std::uint64_t version = 0;
  {
    const RobustGuard turn(control.arrays, deadline);
    if (!turn.held()) return {outcome_of(turn.outcome()), 0};
    GRISTMILL_FAULT_POINT("box.publish.locked");
    const int slot = box.fill_slot(arrays);
    if (slot < 0) return box.refuse_slot();
    const RobustGuard guard(control.writer, deadline);
    if (!guard.held()) return {outcome_of(guard.outcome()), 0};
    version = box.store_version(scalars, slot);
  }
  GRISTMILL_FAULT_POINT("box.publish.unlocked");
  if (box.segment.lost()) [[unlikely]]
    return {PublishOutcome::kBroken, 0};
  box.wake();
  return {PublishOutcome::kOk, version};
}

Box::PublishResult Box::write_word(std::size_t word, std::uint64_t value, Deadline deadline) {
  const Words change{word, {&value, 1}};
  return update_scalars({&change, 1}, deadline);
}

Box::PublishResult Box::update_scalars(std::span<const Words> scalars, Deadline deadline) {
  Impl& box = *impl_;
  box.check_writable("writing");
  if (slot_of(newest_->load(std::memory_order_relaxed)) >= kSlots) [[unlikely]]
    return {PublishOutcome::kBroken, 0};
  std::uint64_t version = 0;
  {
    const RobustGuard guard(box.control->writer, deadline);
    if (!guard.held()) [[unlikely]]
      return {outcome_of(guard.outcome()), 0};
    GRISTMILL_FAULT_POINT("box.update.locked");
    version = box.store_version(scalars, -1);
  }
  GRISTMILL_FAULT_POINT("box.publish.unlocked");
  if (box.segment.lost()) [[unlikely]]
    return {PublishOutcome::kBroken, 0};
  box.wake();
  return {PublishOutcome::kOk, version};
}

Box::Write Box::begin_write(Deadline deadline) {
  Impl& box = *impl_;
  box.check_writable("writing");
  Write write;
  if (slot_of(box.control->newest.load(std::memory_order_relaxed)) >= kSlots) {
    write.outcome_ = PublishOutcome::kBroken;
    return write;
  }
  write.outcome_ = outcome_of(box.control->arrays.lock(deadline));
  if (write.outcome_ != PublishOutcome::kOk) return write;
  write.outcome_ = outcome_of(box.control->writer.lock(deadline));
  if (write.outcome_ != PublishOutcome::kOk) {
    box.control->arrays.unlock();
    return write;
  }
  write.box_ = this;
  write.owner_ = ProcessIdentity::self().pack();
  return write;
}

Box::Write::Write(Write&& other) noexcept
    : box_(std::exchange(other.box_, nullptr)), owner_(other.owner_), outcome_(other.outcome_) {}

Box::Write& Box::Write::operator=(Write&& other) noexcept {
  if (this != &other) {
    release();
    box_ = std::exchange(other.box_, nullptr);
    owner_ = other.owner_;
    outcome_ = other.outcome_;
  }
  return *this;
}

Box::PublishResult Box::Write::commit(std::span<const Words> scalars,
                                      std::span<const std::byte* const> arrays) {
  if (box_ == nullptr || owner_ != ProcessIdentity::self().pack()) {
    throw std::logic_error("box: this write is over, or belongs to the parent process");
  }
  Impl& box = *box_->impl_;
  if (!arrays.empty()) box.check_count(arrays.size(), "commit()");
  PublishResult result;
  int slot = -1;
  if (gives(arrays)) {
    slot = box.fill_slot(arrays);
    if (slot < 0) result = box.refuse_slot();
  }
  if (result.outcome == PublishOutcome::kOk) result.version = box.store_version(scalars, slot);
  release();
  if (box.segment.lost()) [[unlikely]]
    return {PublishOutcome::kBroken, 0};
  if (result.outcome == PublishOutcome::kOk) box.wake();
  return result;
}

void Box::Write::release() {
  if (box_ == nullptr) return;
  BoxControl& control = *std::exchange(box_, nullptr)->impl_->control;
  // In a forked child the locks are still the parent's.
  if (owner_ != ProcessIdentity::self().pack()) return;
  control.writer.unlock();
  control.arrays.unlock();
}

}  // namespace gristmill
