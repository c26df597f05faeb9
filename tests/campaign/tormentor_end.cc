// How a round comes to its end: nobody is tormented any more.

#include <algorithm>

#include "tests/campaign/points.h"
#include "tests/campaign/tormentor.h"

namespace gristmill::campaign {

void Tormentor::calm() {
  calm_ = true;
  for (std::size_t slot = 0; slot < processes_.size(); ++slot) {
    if (processes_[slot].continue_at != 0 && !processes_[slot].killed) go_on(slot);
  }
  tend(nanoseconds_now());
}

void Tormentor::kill_everybody() {
  for (std::size_t slot = 0; slot < processes_.size(); ++slot) kill(slot, How::kKilledEverybody);
  excuse();
  for (std::size_t role = 0; role < cast_.size(); ++role) await_end(role);
}

bool Tormentor::await_end(std::size_t role, bool restart, std::size_t keep) {
  const std::uint64_t limit = nanoseconds_now() + 3 * kHungAfter;
  while (!hopeless_) {
    bool anybody = false;
    for (std::size_t slot = 0; slot < processes_.size(); ++slot) {
      Process& process = processes_[slot];
      if (process.role != role) continue;
      if (process.pid == 0 && restart && process.fell) start(slot, kNone);
      anybody = anybody || process.pid != 0;
    }
    if (!anybody) return true;
    if (keep != kNobody) ensure_one(keep);
    tend(nanoseconds_now() + kMs);
    look_for_hangs();
    if (nanoseconds_now() > limit) {
      result_.find(Finding::kHung, 1,
                   "the last " + std::string(cast_[role].name) + " does not come to its end");
      hopeless_ = true;
    }
  }
  return false;
}

void Tormentor::ensure_one(std::size_t role) {
  std::size_t free = kNone;
  for (std::size_t slot = 0; slot < processes_.size(); ++slot) {
    if (processes_[slot].role != role) continue;
    if (processes_[slot].pid != 0) return;
    free = slot;
  }
  if (free != kNone && !hopeless_) start(free, kNone);
}

void Tormentor::start_one(std::size_t role, std::string_view point) {
  const auto& points = all_points();
  const auto it = std::find_if(points.begin(), points.end(), [&](const Point& p) { return p.name == point; });
  for (std::size_t slot = 0; slot < processes_.size() && it != points.end() && !hopeless_; ++slot) {
    if (processes_[slot].role != role || processes_[slot].pid != 0) continue;
    start(slot, static_cast<std::size_t>(it - points.begin()));
    return;
  }
}

void Tormentor::settle() {
  // A machine that lets a mere sleeper wait for so long lets everybody.
  const auto limit = static_cast<std::uint64_t>(plan_.stall_limit.count()) * kMs + result_.noise.max();
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    const Slot& record = slots_[slot];
    result_.stalls.add(record.stalls);
    result_.net_stalls.add(record.net_stalls);
    result_.late.add(record.late);
    const std::string who(cast_[processes_[slot].role].name);
    if (const std::uint64_t longest = record.net_stalls.max(); longest > limit) {
      result_.find(Finding::kStalled, 1,
                   who + " in " + record.worst_name.load() + " for " + std::to_string(longest / kMs) + " ms");
    }
    if (const std::uint64_t longest = record.late.max(); longest > limit) {
      result_.find(Finding::kStalled, 1,
                   "a " + who + "'s call outlived its deadline by " + std::to_string(longest / kMs) + " ms");
    }
  }
}

}  // namespace gristmill::campaign
