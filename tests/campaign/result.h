#pragma once

// What a round did and found. Written by the round's own process, in memory that survives it.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "tests/campaign/faults.h"
#include "tests/campaign/histogram.h"

namespace gristmill::campaign {

// Each a promise; a count above zero is a violation.
enum class Finding {
  kLost,        // acknowledged, and never delivered
  kDoubled,     // delivered twice
  kDamaged,     // delivered, but not what was put; or put by nobody
  kTorn,        // a read that mixes versions, or a pin that changed while held
  kDisordered,  // one producer's messages in another order; a version older than one seen before
  kShrunk,      // space that is not usable any more when all are gone
  kStalled,     // an operation that took longer than the limit although it could have gone on
  kHung,        // an operation, or a round, that did not end
  kBroken,      // anything else: an outcome that is never right, an exception, a crash
  kLeft,        // shared memory that nobody removes
};
inline constexpr std::array<std::string_view, 10> kFindingNames = {
    "lost", "doubled", "damaged", "torn", "disordered", "shrunk", "stalled", "hung", "broken", "left"};
inline constexpr std::size_t kFindings = kFindingNames.size();

// Counts that say how much was at stake.
enum class Measure {
  kAcknowledged,      // messages, trajectories or versions whose call returned
  kDelivered,         // messages or trajectories taken and checked; reads and pins checked
  kDiedWithConsumer,  // taken by a consumer that was killed before it could say so
  kDropped,           // gave way in a queue that drops the oldest
  kRepeated,          // trajectories given again, their consumer having died before their release
  kUnacknowledged,    // put or published whole by a call that was killed before it returned
  kOwnerDeaths,       // locks taken over from the dead
  kRecovered,         // reservations and claims of the dead, given back
  kLives,             // processes started
};
inline constexpr std::array<std::string_view, 9> kMeasureNames = {
    "acknowledged",   "delivered",    "died_with_consumer", "dropped", "repeated",
    "unacknowledged", "owner_deaths", "recovered",          "lives"};
inline constexpr std::size_t kMeasures = kMeasureNames.size();

inline constexpr std::size_t kMaxRoles = 5;
inline constexpr std::size_t kMaxPoints = 128;

struct Result {
  static constexpr std::size_t kTexts = 8;
  static constexpr std::size_t kText = 300;

  char roles[kMaxRoles][16] = {};           // their names; empty: there is none
  std::uint64_t processes[kMaxRoles] = {};  // at a time, of the last round
  std::uint64_t faults[kMaxRoles][kHows] = {};
  std::uint64_t point_kills[kMaxPoints] = {};
  std::uint64_t point_stops[kMaxPoints] = {};
  std::uint64_t measures[kMeasures] = {};
  std::uint64_t findings[kFindings] = {};
  Histogram stalls;
  Histogram net_stalls;
  Histogram late;
  Histogram noise;  // how late the round's own process, which mostly sleeps, woke up: the machine's doing
  char texts[kTexts][kText] = {};  // of the first findings
  std::size_t text_count = 0;
  bool ended = false;  // the round came to its end, whatever it found

  void find(Finding what, std::uint64_t count, const std::string& text);
  void count(Measure what, std::uint64_t by) { measures[static_cast<std::size_t>(what)] += by; }
  void add(const Result& round);
  std::uint64_t violations() const;
  std::uint64_t kills() const;
  std::uint64_t stops() const;
};

}  // namespace gristmill::campaign
