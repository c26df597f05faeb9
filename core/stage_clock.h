#pragma once

// Charges a process's time to its stages: one clock read where a stage ends.

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "core/run_board.h"

namespace gristmill {

// One thread: that of the row's process. With on == false it reads no clock and charges nothing.
class StageClock {
 public:
  StageClock(RunBoard& board, RunBoard::Row row, bool on)
      : board_(board), row_(row), on_(on), last_ns_(now_ns()) {}

  static std::uint64_t now_ns() {
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                          std::chrono::steady_clock::now().time_since_epoch())
                                          .count());
  }

  // The time since the last charge was `stage`'s. argument: of its trace span.
  void charge(Measure stage, std::uint64_t argument = 0) {
    if (!on_) return;
    const std::uint64_t now = now_ns();
    spend(stage, now > last_ns_ ? now - last_ns_ : 0, argument);
  }
  // The same, of which `inner_ns` were another stage's.
  void charge(Measure stage, std::uint64_t argument, Measure inner, std::uint64_t inner_ns) {
    if (!on_) return;
    const std::uint64_t now = now_ns();
    const std::uint64_t whole = now > last_ns_ ? now - last_ns_ : 0;
    if (inner_ns > 0) spend(inner, std::min(inner_ns, whole), 0);
    spend(stage, whole - std::min(inner_ns, whole), argument);
  }
  // The time since the last charge is nobody's.
  void skip() {
    if (on_) last_ns_ = now_ns();
  }

  bool on() const { return on_; }
  // When the last charge was; the clock is not read again.
  std::uint64_t last_ns() const { return last_ns_; }

 private:
  void spend(Measure stage, std::uint64_t ns, std::uint64_t argument) {
    row_.spend(stage, ns);
    if (board_.tracing()) row_.trace({last_ns_, ns, stage, argument});
    last_ns_ += ns;
  }

  RunBoard& board_;
  RunBoard::Row row_;
  const bool on_;
  std::uint64_t last_ns_;
};

}  // namespace gristmill
