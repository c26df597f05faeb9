#pragma once

// Typed arrays in shared memory, published as one version by a writer and read in place by many.
//
// Several version slots (kSlots): a publish fills a slot that is neither the newest nor pinned,
// then stores the 64-bit newest word (version and slot) with release: a writer killed at any
// instruction never blocks or tears a reader, and the next writer starts over. Readers pin the
// newest slot through their lease (a hazard pointer: store the pin, seq_cst fence, check that the
// newest word is unchanged; the writer stores newest, fences, then reads the pins) and use it with
// no copy. A pin whose owner is proved dead no longer counts. (The fences are those of seq_cst
// operations on the newest word and the pins; box.cc has the argument.)

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "core/deadline.h"
#include "core/field_spec.h"

namespace gristmill {

class Box {
 public:
  static constexpr int kSlots = 4;
  static constexpr int kMaxReaders = 256;

  // A version in place. Movable; unpins at destruction. The box object must outlive it.
  class Pin {
   public:
    Pin() = default;
    Pin(Pin&&) noexcept;
    Pin& operator=(Pin&&) noexcept;
    ~Pin() { release(); }

    explicit operator bool() const { return box_ != nullptr; }
    std::uint64_t version() const { return version_; }
    // [shape...] of field `index`; unchanged until release(). Throws std::logic_error when released,
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
    std::uint64_t version = 0;  // of this publish when kOk
  };

  // Version 0 is all zeros. Throws std::invalid_argument (spec), SegmentError.
  static std::unique_ptr<Box> create(const std::string& name, const FieldSpecs& spec);
  static std::unique_ptr<Box> attach(const std::string& name, Deadline deadline);
  static std::size_t bytes_needed(const FieldSpecs& spec);

  ~Box();

  const FieldSpecs& spec() const;
  const std::string& name() const;

  // Writes every field as one new version (newest + 1): fields[f] points to [shape...] of field f.
  // Writers take turns, until the deadline. Any process, any thread.
  PublishResult publish(std::span<const std::byte* const> fields, Deadline deadline);

  // The newest version. One load (acquire).
  std::uint64_t version() const;
  // Waits until version() > seen; returns the newest version, or nullopt when the deadline passed.
  std::optional<std::uint64_t> watch(std::uint64_t seen, Deadline deadline);

  // Pins the newest version. Never blocks on a writer. Throws std::runtime_error when kMaxReaders
  // living pins are held. Any process, any thread; each thread may hold several pins.
  Pin pin();
  // Copies every field of one consistent version out; returns it. out[f] may be null to skip.
  std::uint64_t read_into(std::span<std::byte* const> out);

  std::uint64_t skipped_publishes() const;  // kNoFreeSlot so far
  void unlink() noexcept;

 private:
  struct Impl;
  explicit Box(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gristmill
