#pragma once

// What is done to processes, and which part is under test.

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace gristmill::campaign {

enum class Part { kQueue, kTrajectories, kBox, kSegments };
inline constexpr std::array<std::string_view, 4> kPartNames = {"queue", "trajectories", "box", "segments"};
inline constexpr std::size_t kParts = kPartNames.size();

// Each kill and each stop is counted under exactly one of these: the first that applies, from the end.
enum class How {
  kKilledAtRandom,
  kKilledAsleep,     // inside an operation, asleep
  kKilledStopped,    // while stopped by SIGSTOP
  kKilledAtPoint,    // by itself, at an armed fault point
  kKilledRepairing,  // at a fault point of the repair of what another death left
  kKilledTogether,   // several at once
  kKilledEverybody,  // all processes of the round at once
  kStoppedAtRandom,  // SIGSTOP, later SIGCONT
  kStoppedAtPoint,   // at an armed fault point
};
inline constexpr std::array<std::string_view, 9> kHowNames = {
    "killed at random",        "killed asleep",        "killed while stopped",
    "killed at a fault point", "killed amid a repair", "killed, several at once",
    "killed, everybody",       "stopped at random",    "stopped at a fault point"};
inline constexpr std::size_t kHows = kHowNames.size();
inline constexpr bool is_kill(std::size_t how) {
  return how < static_cast<std::size_t>(How::kStoppedAtRandom);
}

// Mistakes that a test has the campaign make, to see that it finds them.
enum class Mistake {
  kNone,
  kNoRecovery,  // nobody is ever proved dead
  kDrop,        // a consumer forgets what it took; a writer acknowledges what it did not write
  kDuplicate,   // a consumer notes something twice; a writer acknowledges a version twice
  kFlip,        // a bit of the content is wrong
  kReorder,     // a consumer notes two messages the wrong way round; a reader an old version late
  kLeak,        // a place, or a pin, is held for ever
  kStall,       // an operation takes 300 ms
  kHang,        // an operation never ends
  kCrash,       // a process ends by a segmentation fault
};
inline constexpr std::array<std::string_view, 10> kMistakeNames = {
    "none", "no-recovery", "drop", "duplicate", "flip", "reorder", "leak", "stall", "hang", "crash"};

template <class Enum, std::size_t N>
std::optional<Enum> named(const std::array<std::string_view, N>& names, std::string_view name) {
  for (std::size_t i = 0; i < N; ++i) {
    if (names[i] == name) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

}  // namespace gristmill::campaign
