#pragma once

// Typed shared state: scalars (numbers, flags, short texts, times) and arrays, under one version.
// Any process may write, writers take turns; any number read.
//
// Scalars live in blocks, arrays in slots, four of each. The newest word (version << 3 | slot) is the
// one truth: version v has its scalars in block v % 4, its arrays in the slot named there.
//
//   write scalars   lock `writer`; copy the newest block with the changes into the next one (which
//                   no valid reader looks at); store newest = (v + 1, same slot); unlock
//   write arrays    take the turn `arrays`; choose a slot that is neither the newest nor pinned; copy;
//                   then as above, with the new slot. Arrays that are not given are carried over.
//   read scalars    load newest, the words, newest again: valid while at most two versions passed (a
//                   writer overwrites block v % 4 only after it has stored v + 3)
//   read arrays     pin the newest slot through a lease (a hazard pointer) and use it in place, or copy;
//                   where only reading is permitted, copy and check that the slot was not filled anew
//
// A writer killed at any instruction leaves the newest word as it was, or the whole new version: a
// block or slot half filled is nobody's. Both locks name their holder, and pass on when it is proved
// dead. A pin whose owner is proved dead no longer counts. box.cc argues why no data race is left.
//
// A box whose shared memory another process has cut short is kBroken to writers, and every read throws
// std::runtime_error; a pin that is out shows zeros from then on.

#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/box_layout.h"
#include "core/deadline.h"
#include "core/field_spec.h"

namespace gristmill {

class Box {
 public:
  static constexpr int kSlots = kBoxSlots;
  static constexpr int kMaxReaders = kBoxReaders;

  enum class Access {
    kReadWrite,
    kReadOnly,  // mapped PROT_READ: no pin, no write. To be woken it maps the one page of the box that
                // holds no data, `published`, for writing; where it may not even do that, watch() looks
                // for a new version in growing steps, at last every kGlance
  };
  static constexpr std::chrono::milliseconds kGlance{1};

  // A version of the arrays in place. Movable; unpins at destruction. The box must outlive it.
  class Pin {
   public:
    Pin() = default;
    Pin(Pin&&) noexcept;
    Pin& operator=(Pin&&) noexcept;
    ~Pin() { release(); }

    explicit operator bool() const { return box_ != nullptr; }
    std::uint64_t version() const { return version_; }
    // [shape...] of array `index`; unchanged until release(). Throws std::logic_error when released,
    // and in a forked child: the pin is its parent's, who may let go of it at any time.
    const std::byte* field(std::size_t index) const;
    void release();

   private:
    friend class Box;
    Box* box_ = nullptr;
    std::uint64_t owner_ = 0;  // the process that pinned, packed: a forked child has no share in it
    std::uint64_t version_ = 0;
    int slot_ = -1;
    int lease_ = -1;
  };

  enum class PublishOutcome {
    kOk,
    kNoFreeSlot,  // every other slot is pinned by a living process: nothing changed, counted
    kTimedOut,    // another writer holds the lock and does not move
    kBroken,
  };
  struct PublishResult {
    PublishOutcome outcome = PublishOutcome::kOk;
    std::uint64_t version = 0;  // of this write when kOk
  };
  // New content for a scalar's words, from its first_word() on.
  struct Words {
    std::size_t first = 0;
    std::span<const std::uint64_t> values;
  };

  // Both locks, held while the caller reads and decides: no other writer comes between. Movable.
  // Released without a trace at destruction unless committed.
  class Write {
   public:
    Write() = default;
    Write(Write&& other) noexcept;
    Write& operator=(Write&& other) noexcept;
    ~Write() { release(); }
    // kOk: held. Any thread of the process that began it may commit or release.
    PublishOutcome outcome() const { return outcome_; }
    // As update(); releases in any case. Throws std::logic_error when not held.
    PublishResult commit(std::span<const Words> scalars, std::span<const std::byte* const> arrays);
    void release();

   private:
    friend class Box;
    Box* box_ = nullptr;
    std::uint64_t owner_ = 0;
    PublishOutcome outcome_ = PublishOutcome::kTimedOut;
  };

  // Version 0 is all zeros. Throws std::invalid_argument (fields), SegmentError.
  static std::unique_ptr<Box> create(const std::string& name, const FieldSpecs& arrays,
                                     const ScalarSpecs& scalars = {});
  static std::unique_ptr<Box> attach(const std::string& name, Deadline deadline,
                                     Access access = Access::kReadWrite);
  static std::size_t bytes_needed(const FieldSpecs& arrays, const ScalarSpecs& scalars = {});

  ~Box();

  const FieldSpecs& spec() const;  // of the arrays
  const ScalarSpecs& scalars() const;
  std::size_t first_word(std::size_t scalar) const;
  std::size_t words() const;  // of all scalars
  const std::string& name() const;
  bool read_only() const;

  // Writes every array as one new version (newest + 1): fields[f] points to [shape...] of array f.
  // Writers take turns, until the deadline. Any process, any thread. Throws std::logic_error on a
  // read-only box.
  PublishResult publish(std::span<const std::byte* const> fields, Deadline deadline);
  // As publish, for some: scalars as given, arrays where the pointer is not null (or none: an empty
  // span). The others keep their values. REQUIRES: the words lie within words().
  PublishResult update(std::span<const Words> scalars, std::span<const std::byte* const> arrays,
                       Deadline deadline);
  // As update, for one word. REQUIRES: word < words().
  PublishResult write_word(std::size_t word, std::uint64_t value, Deadline deadline);
  Write begin_write(Deadline deadline);

  // The newest version. One load (acquire).
  std::uint64_t version() const { return newest_->load(std::memory_order_acquire) >> kBoxSlotBits; }
  // Waits until version() > seen; returns the newest version, or nullopt when the deadline passed.
  // Spins for `spin` first; by default for as long as has paid off here, and not at all where cores are
  // scarce (core/spin_budget.h). One writer's wake reaches all watchers, who wake each other: its cost
  // does not grow with their number.
  std::optional<std::uint64_t> watch(std::uint64_t seen, Deadline deadline,
                                     std::optional<std::chrono::nanoseconds> spin = std::nullopt);

  // Copies the words [first, first + out.size()) of one version; returns it. Never blocks.
  std::uint64_t read_words(std::size_t first, std::span<std::uint64_t> out) const;
  // One word, as fast as can be. REQUIRES: word < words().
  std::uint64_t read_word(std::size_t word) const {
    while (true) {
      const std::uint64_t version = newest_->load(std::memory_order_acquire) >> kBoxSlotBits;
      // SYNC POINT: as in read_words; see the head of this file for the bound.
      const std::uint64_t value =
          blocks_[version % kBoxBlocks * block_stride_ + word].load(std::memory_order_acquire);
      const std::uint64_t now = newest_->load(std::memory_order_relaxed) >> kBoxSlotBits;
      if (now - version <= kBoxBlocks - 2) [[likely]] {
        if (lost_->load(std::memory_order_relaxed)) [[unlikely]]
          refuse_lost();
        return value;
      }
    }
  }
  // One scalar; throws std::invalid_argument naming both types when it is of another.
  bool read_bool(std::size_t scalar) const { return read_word(place_of(scalar, ScalarType::kBool)) != 0; }
  std::int64_t read_int(std::size_t scalar) const {
    return std::bit_cast<std::int64_t>(read_word(place_of(scalar, ScalarType::kInt64)));
  }
  double read_float(std::size_t scalar) const {
    return std::bit_cast<double>(read_word(place_of(scalar, ScalarType::kFloat64)));
  }
  std::string read_text(std::size_t scalar) const;  // kText and kBytes
  PublishResult write_bool(std::size_t scalar, bool value, Deadline deadline) {
    return write_word(place_of(scalar, ScalarType::kBool), value ? 1 : 0, deadline);
  }
  PublishResult write_int(std::size_t scalar, std::int64_t value, Deadline deadline) {
    return write_word(place_of(scalar, ScalarType::kInt64), std::bit_cast<std::uint64_t>(value), deadline);
  }
  PublishResult write_float(std::size_t scalar, double value, Deadline deadline) {
    return write_word(place_of(scalar, ScalarType::kFloat64), std::bit_cast<std::uint64_t>(value), deadline);
  }
  // Throws std::length_error when the value is longer than the scalar's capacity.
  PublishResult write_text(std::size_t scalar, std::string_view value, Deadline deadline);

  // Pins the newest version; `words` (all of them, or none) receives its scalars. Never blocks on a
  // writer. Throws std::runtime_error when kMaxReaders living pins are held, std::logic_error on a
  // read-only box. Any process, any thread; each thread may hold several pins.
  Pin pin(std::span<std::uint64_t> words = {});
  // Copies the arrays of one consistent version out; returns it. out[f] may be null to skip; `words`
  // (all of them, or none) receives the scalars of the same version. Works read-only too.
  std::uint64_t read_into(std::span<std::byte* const> out, std::span<std::uint64_t> words = {});

  std::uint64_t skipped_publishes() const;  // kNoFreeSlot so far
  // Removes the name; see Segment::unlink.
  void unlink() noexcept;

 private:
  struct Impl;
  // Where a scalar of one word lies.
  struct Place {
    std::size_t word = 0;
    ScalarType type = ScalarType::kBool;
  };

  explicit Box(std::unique_ptr<Impl> impl);
  std::size_t place_of(std::size_t scalar, ScalarType type) const {
    if (scalar < places_.size() && places_[scalar].type == type) [[likely]]
      return places_[scalar].word;
    refuse_type(scalar, type);
  }
  [[noreturn]] void refuse_type(std::size_t scalar, ScalarType type) const;
  [[noreturn]] void refuse_lost() const;
  PublishResult update_scalars(std::span<const Words> scalars, Deadline deadline);
  std::optional<std::uint64_t> sleep_until_after(std::uint64_t seen, Deadline deadline);
  std::optional<std::uint64_t> glance_until_after(std::uint64_t seen, Deadline deadline);

  std::unique_ptr<Impl> impl_;
  // Of the layout and the mapping, at hand for reads of one word.
  std::vector<Place> places_;
  const std::atomic<std::uint64_t>* newest_ = nullptr;
  const std::atomic<std::uint64_t>* blocks_ = nullptr;
  std::size_t block_stride_ = 0;
  const std::atomic<bool>* lost_ = nullptr;
};

}  // namespace gristmill
