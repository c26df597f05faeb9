#include "core/fault_point.h"

#ifdef GRISTMILL_FAULT_POINTS

#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>

namespace gristmill::fault {

std::atomic<bool> watching{false};

namespace {

std::atomic<bool> nobody_dies{false};
std::atomic<void (*)()> before_raise{nullptr};

struct State {
  std::mutex mutex;
  std::string point;  // empty: none is armed
  Action action = Action::kKill;
  int passes_left = 0;
  bool recording = false;
  std::vector<std::string> recorded;
};

State& state() {
  static auto* const it = new State;  // outlives every thread
  return *it;
}

// GRISTMILL_FAULT=kill:put.claimed:3
const bool kArmedByEnvironment = [] {
  const char* text = std::getenv("GRISTMILL_FAULT");
  if (text == nullptr) return false;
  const std::string_view all(text);
  const auto first = all.find(':');
  const auto last = all.rfind(':');
  if (first == std::string_view::npos || last == first) return false;
  arm(all.substr(first + 1, last - first - 1), all.substr(0, first) == "stop" ? Action::kStop : Action::kKill,
      std::max(1, std::atoi(text + last + 1)));
  return true;
}();

}  // namespace

void arm(std::string_view point, Action action, int pass) {
  std::lock_guard guard(state().mutex);
  state().point = point;
  state().action = action;
  state().passes_left = pass;
  watching.store(true, std::memory_order_relaxed);
}

void disarm() {
  std::lock_guard guard(state().mutex);
  state().point.clear();
  watching.store(state().recording, std::memory_order_relaxed);
}

void start_recording() {
  std::lock_guard guard(state().mutex);
  state().recording = true;
  state().recorded.clear();
  watching.store(true, std::memory_order_relaxed);
}

std::vector<std::string> stop_recording() {
  std::lock_guard guard(state().mutex);
  state().recording = false;
  watching.store(!state().point.empty(), std::memory_order_relaxed);
  return std::move(state().recorded);
}

void call_before_raise(void (*hook)()) { before_raise.store(hook); }
void disable_recovery() { nobody_dies.store(true, std::memory_order_relaxed); }
bool recovery_disabled() { return nobody_dies.load(std::memory_order_relaxed); }

void passed(std::string_view point) {
  {
    std::lock_guard guard(state().mutex);
    auto& recorded = state().recorded;
    if (state().recording && std::find(recorded.begin(), recorded.end(), point) == recorded.end()) {
      recorded.emplace_back(point);
    }
    if (state().point != point || --state().passes_left > 0) return;
    state().point.clear();
    watching.store(state().recording, std::memory_order_relaxed);
  }
  // Outside the mutex: a stopped process that is continued goes on as if nothing had happened.
  if (void (*const hook)() = before_raise.load()) hook();
  // To the own thread, so that it goes no step further.
  ::raise(state().action == Action::kStop ? SIGSTOP : SIGKILL);
}

}  // namespace gristmill::fault

#endif
