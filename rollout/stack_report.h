#pragma once

// Where a process hangs, told by the process itself: at kStackSignal() it appends its stack to a file in
// memory that nobody else has to name or remove, and the supervisor reads it through /proc. Works while the
// process is stuck in foreign code, as long as the kernel can run a signal handler in it. Python's workers do
// the same with faulthandler (python/gristmill/stack_report.py); the two agree on the signal and on the name.

#include <sys/types.h>

#include <optional>
#include <string>

namespace gristmill {

// A real-time signal, which leaves SIGUSR1 and SIGUSR2 to environments.
int stack_signal();

// The calling process answers from now on. Native frames, by backtrace(); those of its main thread. False
// when the kernel refuses. Call once, from the main thread.
bool report_stacks();

// One request to another process of the same user. Not thread-safe.
class StackRequest {
 public:
  // Asks now. `pid` must not have been reaped. A process that does not answer to the signal is not sent it.
  explicit StackRequest(pid_t pid);
  StackRequest(StackRequest&& other) noexcept;
  StackRequest& operator=(StackRequest&&) = delete;
  ~StackRequest();

  // Whether it was asked: false when it is known not to answer.
  bool was_sent() const { return fd_ >= 0; }

  struct Stack {
    std::string where;   // innermost frame: "step at /home/me/env.py:12"
    std::string frames;  // one a line, innermost first, each indented and ended by a newline
  };
  // What has come until now: ask a moment later. nullopt when nothing has: the process is stopped, in an
  // uninterruptible call, or has no handler.
  std::optional<Stack> collect() const;

 private:
  int fd_ = -1;
  off_t before_ = 0;  // the file's size when it was asked
};

// What a process wrote, in one form whether Python's faulthandler or report_stacks() wrote it; only the
// thread that got the signal. nullopt when there is no frame in it.
std::optional<StackRequest::Stack> parse_stack(const std::string& text);

}  // namespace gristmill
