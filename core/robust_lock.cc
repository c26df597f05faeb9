#include "core/robust_lock.h"

#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <stdexcept>
#include <string>

namespace gristmill {
namespace {

int lock_until(pthread_mutex_t* mutex, Deadline deadline) {
  if (deadline.is_never()) return ::pthread_mutex_lock(mutex);
#if defined(__SANITIZE_THREAD__)
  // The thread sanitizer of GCC 12 does not know pthread_mutex_clocklock, and takes an owner's death
  // told by pthread_mutex_timedlock for a lock that was not taken.
  while (true) {
    const int result = ::pthread_mutex_trylock(mutex);
    if (result != EBUSY) return result;
    if (deadline.passed()) return ETIMEDOUT;
    ::usleep(50);
  }
#else
  const std::chrono::nanoseconds since_boot = deadline.at().time_since_epoch();
  const timespec at{static_cast<time_t>(since_boot.count() / 1'000'000'000),
                    static_cast<long>(since_boot.count() % 1'000'000'000)};
  return ::pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &at);
#endif
}

}  // namespace

void RobustLock::init() {
  pthread_mutexattr_t attributes;
  ::pthread_mutexattr_init(&attributes);
  ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  const int error = ::pthread_mutex_init(&mutex_, &attributes);
  ::pthread_mutexattr_destroy(&attributes);
  if (error != 0) {
    throw std::runtime_error("cannot make a process-shared robust mutex: error " + std::to_string(error) +
                             " of pthread_mutex_init (expected glibc on Linux)");
  }
  owner_deaths_.store(0, std::memory_order_relaxed);
}

RobustLock::Outcome RobustLock::lock(Deadline deadline) {
  switch (lock_until(&mutex_, deadline)) {
    case 0:
      return Outcome::kLocked;
    case EOWNERDEAD:
      // Consistent at once: should the repairer die in its repair, the next holder is told again,
      // whereas a mutex unlocked before it is consistent is lost for ever.
      ::pthread_mutex_consistent(&mutex_);
      owner_deaths_.store(owner_deaths_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      return Outcome::kOwnerDied;
    case ETIMEDOUT:
      return Outcome::kTimedOut;
    default:
      return Outcome::kBroken;
  }
}

void RobustLock::unlock() { ::pthread_mutex_unlock(&mutex_); }

}  // namespace gristmill
