#pragma once

// What one process of a round writes down as it goes, in memory that survives it. One process after the
// other plays in a slot; the tormentor reads, and resets it between two of them.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tests/campaign/excused_clock.h"
#include "tests/campaign/histogram.h"

namespace gristmill::campaign {

struct alignas(64) Slot {
  static constexpr std::size_t kLogWords = std::size_t{1} << 14;
  static constexpr std::size_t kFailureText = 240;

  // Single writer: the process that plays in the slot.
  std::atomic<std::uint64_t> op_since{0};    // when its operation began; 0: in none
  std::atomic<std::uint64_t> op_excused{0};  // its clock then
  std::atomic<int> op_clock{0};
  std::atomic<const char*> op_name{nullptr};  // all processes are forks of one image
  // The meaning of these is the part's: what may be on its way, what was acknowledged, and what is held.
  std::atomic<std::uint64_t> about_to{0};
  std::atomic<std::uint64_t> acknowledged{0};
  std::atomic<std::uint64_t> taking{0};
  std::atomic<std::uint64_t> released{0};
  std::atomic<std::uint64_t> log_end{0};  // words ever logged; release, pairs with the tormentor's acquire
  std::array<std::atomic<std::uint64_t>, kLogWords> log{};
  std::atomic<std::uint64_t> at_point_since{0};  // when it came to its armed fault point
  std::atomic<int> failed{0};                    // a Finding + 1; release: the text is there
  char failure[kFailureText] = {};
  // Of every life in this slot: what operations took; the same without the time in which this process was
  // runnable and had no core; and how long after its deadline a call returned, without that time either.
  Histogram stalls;
  Histogram net_stalls;
  Histogram late;
  std::atomic<const char*> worst_name{nullptr};  // of the longest in net_stalls

  // Single writer: the tormentor.
  std::atomic<std::uint64_t> drained{0};  // words of the log that are read; release
  ExcusedClock own_stops;

  // By the tormentor, between two lives.
  void reset() {
    for (auto* word :
         {&op_since, &about_to, &acknowledged, &taking, &released, &at_point_since, &log_end, &drained})
      word->store(0);
    failed.store(0);
  }
};

// Shared by all of a round.
struct RoundState {
  // 0: for who puts or writes; 1: for who takes; 2: for who depends on nobody.
  static constexpr int kClocks = 3;
  ExcusedClock clocks[kClocks];
  // When a process last took or released something, by slot; single writer: whoever plays in it.
  std::array<std::atomic<std::uint64_t>, 32> took_at{};
  std::atomic<bool> finish{false};  // producers and writers end after their operation
  std::atomic<bool> drain{false};   // all producers are gone: consumers end when nothing is left
};

}  // namespace gristmill::campaign
