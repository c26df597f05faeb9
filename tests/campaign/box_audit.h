#pragma once

// Replays what writers did, version by version, and compares it with what readers saw. Private to the round's
// process.
//
// A write gives one tag to some of four groups of fields. So version v is the state of v - 1 with one write
// applied: what a reader saw of v must be exactly that. The write of a writer that was killed before it
// returned may have been applied or not, and its version is unknown: readers decide.

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "tests/campaign/result.h"

namespace gristmill::campaign {

// Groups of fields that are always written together.
enum BoxGroup : std::size_t { kScalars, kText, kArrayA, kArrayB };
inline constexpr std::size_t kBoxGroups = 4;

// What a write covers, in its log word: groups as bits above the tag.
struct BoxWrite {
  static constexpr int kMaskShift = 60;
  static std::uint64_t pack(std::uint64_t mask, std::uint64_t tag) { return mask << kMaskShift | tag; }
  static bool covers(std::uint64_t word, std::size_t group) {
    return (word >> (kMaskShift + group) & 1) != 0;
  }
  static std::uint64_t tag(std::uint64_t word) { return word & ((std::uint64_t{1} << kMaskShift) - 1); }
};

// What a reader saw: a version, and the tag of each group; kNotRead where it did not look.
struct BoxSight {
  static constexpr std::uint64_t kNotRead = ~std::uint64_t{0};
  std::uint64_t version = 0;
  std::array<std::uint64_t, kBoxGroups> tags{};
};

class BoxAudit {
 public:
  explicit BoxAudit(Result& result) : result_(result) {}

  // A write that returned kOk with this version.
  void wrote(std::uint64_t version, std::uint64_t write);
  // One that was under way when its writer was killed.
  void may_have_written(std::uint64_t write) { pending_.push_back(write); }
  void saw(const BoxSight& sight) { sights_.push_back(sight); }
  // After all of the above; `newest` is the box's version.
  void settle(std::uint64_t newest);

 private:
  Result& result_;
  std::map<std::uint64_t, std::uint64_t> writes_;  // by version
  std::vector<std::uint64_t> pending_;
  std::vector<BoxSight> sights_;
};

}  // namespace gristmill::campaign
