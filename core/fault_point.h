#pragma once

// Places where a test kills or stops the process that passes them. Compiled in only where
// GRISTMILL_FAULT_POINTS is defined (the CMake option of that name); a point that is not armed then
// costs one relaxed load, and nothing at all elsewhere.

#ifdef GRISTMILL_FAULT_POINTS

#include <atomic>
#include <string>
#include <string_view>
#include <vector>

namespace gristmill::fault {

enum class Action { kKill, kStop };  // SIGKILL, SIGSTOP to the own process

// The `pass`-th time (1 is the next) that this process passes `point`, from any thread. One point at
// a time. Inherited by forked children. GRISTMILL_FAULT=kill:<point>:<pass> (or stop:…) in the
// environment arms a process from its start.
void arm(std::string_view point, Action action, int pass = 1);
void disarm();

// The distinct points that this process passes until stop_recording(), in order of first passing. So
// a test covers every point without a list of its own.
void start_recording();
std::vector<std::string> stop_recording();

// Called right before a process is killed or stopped at its armed point, so that it can note when. Inherited
// by forked children; null for none.
void call_before_raise(void (*hook)());

// From here on nobody is proved dead, in this process and those that it forks: what the dead left is never
// repaired. So a test of a test sees whether it would notice.
void disable_recovery();
bool recovery_disabled();

extern std::atomic<bool> watching;
void passed(std::string_view point);

}  // namespace gristmill::fault

#define GRISTMILL_FAULT_POINT(point)                                               \
  do {                                                                             \
    if (::gristmill::fault::watching.load(std::memory_order_relaxed)) [[unlikely]] \
      ::gristmill::fault::passed(point);                                           \
  } while (false)

#else

#define GRISTMILL_FAULT_POINT(point) \
  do {                               \
  } while (false)

#endif
