// Reading a box: words, pins, copies of arrays.

#include <utility>

#include "core/box_impl.h"
#include "core/shared_copy.h"

namespace gristmill {
namespace {

[[noreturn]] void damaged(const std::string& name, int slot) {
  throw std::runtime_error("box '" + name + "' is damaged: its newest slot is " + std::to_string(slot));
}

}  // namespace

std::uint64_t Box::read_words(std::size_t first, std::span<std::uint64_t> out) const {
  const Impl& box = *impl_;
  while (true) {
    const std::uint64_t newest = box.control->newest.load(std::memory_order_acquire);
    GRISTMILL_FAULT_POINT("box.read.loaded");
    if (box.copy_words(newest, first, out)) [[likely]] {
      box.check_whole();
      return version_of(newest);
    }
  }
}

Box::Pin Box::pin(std::span<std::uint64_t> words) {
  Impl& box = *impl_;
  box.check_writable("pin()");
  box.check_words(words.size(), "pin()");
  thread_local int hint = 0;  // the lease this thread had last is warm, and most likely free
  const int index = box.leases.claim(true, hint);
  if (index < 0) {
    throw std::runtime_error("box '" + name() + "': all " + std::to_string(kMaxReaders) +
                             " pins are held by living processes; release some before pinning more");
  }
  hint = index;
  GRISTMILL_FAULT_POINT("box.pin.claimed");
  if (index >= box.scan_limit()) {
    std::int32_t now = box.control->scan_limit.load(std::memory_order_seq_cst);
    while (now < index + 1 && !box.control->scan_limit.compare_exchange_weak(now, index + 1)) {
    }
  }
  Lease& lease = box.leases[index];
  std::uint64_t word = box.control->newest.load(std::memory_order_seq_cst);
  int pinned = -1;
  while (true) {
    const int slot = slot_of(word);
    if (slot >= kSlots) {
      box.leases.release(index);
      damaged(name(), slot);
    }
    if (slot == pinned && (words.empty() || box.copy_words(word, 0, words))) break;
    if (slot != pinned) {
      GRISTMILL_FAULT_POINT("box.pin.loaded");
      lease.value.store(static_cast<std::uint64_t>(slot) + 1, std::memory_order_seq_cst);  // R1
      GRISTMILL_FAULT_POINT("box.pin.stored");
      pinned = slot;
    }
    word = box.control->newest.load(std::memory_order_seq_cst);  // R2
  }
  box.check_whole();
  Pin pin;
  pin.box_ = this;
  pin.owner_ = ProcessIdentity::self().pack();
  pin.version_ = version_of(word);
  pin.slot_ = pinned;
  pin.lease_ = index;
  return pin;
}

std::uint64_t Box::read_into(std::span<std::byte* const> out, std::span<std::uint64_t> words) {
  Impl& box = *impl_;
  box.check_count(out.size(), "read_into()");
  box.check_words(words.size(), "read_into()");
  const auto copy = [&](int slot) {
    for (std::size_t f = 0; f < out.size(); ++f) {
      if (out[f] == nullptr || box.layout.array_bytes[f] == 0) continue;
      if (box.read_only) {
        copy_from_shared(out[f], box.field(slot, f), box.layout.array_bytes[f]);
      } else {
        // Pinned: nobody writes it, and a plain copy is no race (the argument is in box.cc).
        copy_from_still(out[f], box.field(slot, f), box.layout.array_bytes[f]);
      }
      GRISTMILL_FAULT_POINT("box.read.field_copied");
    }
  };
  if (!box.read_only) {
    const Pin held = pin(words);
    copy(held.slot_);
    box.check_whole();
    return held.version();
  }
  std::uint64_t newest = box.control->newest.load(std::memory_order_acquire);
  while (true) {
    const int slot = slot_of(newest);
    if (slot >= kSlots) damaged(name(), slot);
    const std::uint64_t filled = box.control->filled[slot].load(std::memory_order_acquire);
    newest = box.control->newest.load(std::memory_order_acquire);
    if (slot_of(newest) != slot || !box.copy_words(newest, 0, words)) continue;
    copy(slot);
    box.check_whole();
    if (box.control->filled[slot].load(std::memory_order_relaxed) == filled) return version_of(newest);
    newest = box.control->newest.load(std::memory_order_acquire);
  }
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
  if (index >= box_->spec().size()) {
    throw std::out_of_range("box '" + box_->name() + "': field " + std::to_string(index) + " of " +
                            std::to_string(box_->spec().size()));
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
