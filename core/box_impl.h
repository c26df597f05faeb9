#pragma once

// What the parts of Box (box.cc, box_read.cc) share. Not for others.

#include <atomic>
#include <optional>
#include <stdexcept>
#include <string>

#include "core/box.h"
#include "core/fault_point.h"
#include "core/process_identity.h"
#include "core/segment.h"
#include "core/shared_page.h"
#include "core/spin_budget.h"

namespace gristmill {

inline std::uint64_t version_of(std::uint64_t newest) { return newest >> kBoxSlotBits; }
inline int slot_of(std::uint64_t newest) { return static_cast<int>(newest & kBoxSlotMask); }

struct Box::Impl {
  Impl(Segment the_segment, BoxLayout the_layout, Access access);

  std::byte* field(int slot, std::size_t index) const {
    return slots + static_cast<std::size_t>(slot) * layout.slot_bytes + layout.array_offsets[index];
  }
  std::atomic<std::uint64_t>* block(std::uint64_t version) const {
    return blocks + (version % kBoxBlocks) * layout.block_stride;
  }
  void check_count(std::size_t given, const char* call) const;
  void check_words(std::size_t given, const char* call) const;
  void check_writable(const char* call) const {
    if (read_only) {
      throw std::logic_error("box '" + segment.name() + "' is attached read-only: " + call +
                             " needs one that is attached for writing");
    }
  }

  // Throws std::runtime_error when the segment has been cut short: what was just read may be zeros.
  void check_whole() const {
    if (segment.lost()) [[unlikely]] {
      throw std::runtime_error("box '" + segment.name() +
                               "' is damaged: another process has cut its shared memory short");
    }
  }

  // Copies words of one version; `newest` becomes the word it is of. False: the writer was quicker.
  bool copy_words(std::uint64_t newest, std::size_t first, std::span<std::uint64_t> out) const {
    const std::uint64_t version = version_of(newest);
    const std::atomic<std::uint64_t>* from = block(version) + first;
    // SYNC POINT: acquire pairs with the release of a word by the writer of version + 4; whoever sees
    // one of those sees newest >= version + 3 below.
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = from[i].load(std::memory_order_acquire);
    return version_of(control->newest.load(std::memory_order_relaxed)) - version <= kBoxBlocks - 2;
  }

  int scan_limit() const {
    const int limit = control->scan_limit.load(std::memory_order_seq_cst);
    return limit < 0 || limit > kMaxReaders ? kMaxReaders : limit;
  }
  unsigned pinned() const;
  void reclaim_dead_pins();
  int choose_slot(int newest);
  // With `arrays` held. The slot that was filled, or -1.
  int fill_slot(std::span<const std::byte* const> given);
  // With `writer` held. slot -1: the arrays stay.
  std::uint64_t store_version(std::span<const Words> scalars, int slot);
  PublishResult refuse_slot();
  void wake();

  Segment segment;
  BoxLayout layout;
  bool read_only = false;
  BoxControl* control = nullptr;
  // What watchers sleep on; null where this process may write nothing at all.
  EventCount* published = nullptr;
  std::optional<SharedPage> page;  // it, when the rest is mapped for reading
  SpinBudget spin_budget;
  LeaseTable leases;
  std::atomic<std::uint64_t>* blocks = nullptr;
  std::byte* slots = nullptr;
};

}  // namespace gristmill
