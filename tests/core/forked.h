#pragma once

// A forked child of a test, for what only processes can show: being killed, stopped, or forked with
// something in hand.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <functional>
#include <new>
#include <utility>

namespace gristmill {

class Forked {
 public:
  // Runs `body` in a child, which exits with its result (0 is success), or 99 after an exception.
  explicit Forked(const std::function<int()>& body) {
    std::fflush(nullptr);
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    int result = 99;
    try {
      result = body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "forked child: %s\n", error.what());
    }
    ::_exit(result);
  }
  Forked(Forked&& other) noexcept : pid_(std::exchange(other.pid_, 0)) {}
  Forked(const Forked&) = delete;
  Forked& operator=(const Forked&) = delete;
  ~Forked() { kill(); }

  pid_t pid() const { return pid_; }
  void signal(int number) const { ::kill(pid_, number); }

  // Blocks until it has ended; its waitpid status.
  int wait() {
    int status = -1;
    while (pid_ > 0 && ::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = 0;
    return status;
  }
  bool succeeds() {
    const int status = wait();
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  bool dies_of(int number) {
    const int status = wait();
    return WIFSIGNALED(status) && WTERMSIG(status) == number;
  }
  void kill() {
    if (pid_ <= 0) return;
    signal(SIGKILL);
    wait();
  }
  // Blocks until it is stopped by a signal (its own, or stop()'s). False: it has ended instead.
  bool wait_stopped() const {
    int status = 0;
    while (::waitpid(pid_, &status, WUNTRACED) < 0 && errno == EINTR) {
    }
    return WIFSTOPPED(status);
  }
  bool stop() const {
    signal(SIGSTOP);
    return wait_stopped();
  }

 private:
  pid_t pid_ = 0;
};

// One T shared with forked children. T must be usable from several processes (atomics).
template <class T>
class SharedWithChildren {
 public:
  SharedWithChildren() {
    void* memory = ::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    value_ = new (memory) T();
  }
  ~SharedWithChildren() { ::munmap(value_, sizeof(T)); }
  SharedWithChildren(const SharedWithChildren&) = delete;
  SharedWithChildren& operator=(const SharedWithChildren&) = delete;
  T& operator*() const { return *value_; }
  T* operator->() const { return value_; }

 private:
  T* value_ = nullptr;
};

// Yields until `ready`; false after a generous time-out, so that nothing hangs.
template <class Ready>
bool eventually(Ready ready, int seconds = 30) {
  for (int i = 0; i < seconds * 1000; ++i) {
    if (ready()) return true;
    ::usleep(1000);
  }
  return ready();
}

}  // namespace gristmill
