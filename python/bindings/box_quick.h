#pragma once

// The changes of one update, gathered on the stack: what is nearly always written (plain numbers, short
// texts, arrays that can be copied as they are) without an allocation and without running Python code.

#include <array>
#include <cstddef>
#include <cstdint>

#include "python/bindings/box_object.h"

namespace gristmill::python {

class QuickChanges {
 public:
  // `state` and the values must outlive it. REQUIRES: the GIL.
  explicit QuickChanges(const BoxState& state) : state_(state) {}

  // False, without an exception: this takes a `Changes`.
  bool add(const BoxField& field, PyObject* value) {
    if (pieces_ == kMost) return false;
    if (field.words == 1) {
      if (used_ == kWords || !plain_word_of(field, value, &words_[used_])) return false;
      changes()[pieces_++] = {field.word, {&words_[used_++], 1}};
      return true;
    }
    return field.array < 0 ? add_text(field, value) : add_array(field, value);
  }
  enum class Committed { kYes, kNot, kError };
  // kNot: another writer has its turn just now. kError: a Python exception is set. `state` is the
  // one given above, kept while a large copy runs without the GIL.
  Committed commit(const std::shared_ptr<BoxState>& state, std::uint64_t* version);

 private:
  static constexpr std::size_t kMost = 16, kWords = 96;

  bool add_text(const BoxField& field, PyObject* value);
  bool add_array(const BoxField& field, PyObject* value);

  const BoxState& state_;
  std::size_t pieces_ = 0, used_ = 0, arrays_ = 0, bytes_ = 0;
  std::array<Box::Words, kMost>& changes() { return room_.changes; }
  // Not initialised: that would take as long as the update.
  union Room {
    Room() {}
    std::array<Box::Words, kMost> changes;
  } room_;
  std::array<std::uint64_t, kWords> words_;
  std::array<const std::byte*, kMost> pointers_;  // of every array, once one is given
};

}  // namespace gristmill::python
