#pragma once

// Starting, naming and ending a child process. Nothing of the parent but stdout, stderr, the working
// directory and the given environment reaches it.

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace gristmill {

// The calling process's environment, with one thread for OpenMP and MKL in the child unless the
// user said otherwise: many workers share the cores.
std::vector<std::string> worker_environment();

// Where exec finds `program`: itself when it has a slash, else the first hit in $PATH. Throws
// std::runtime_error naming where it looked.
std::string find_program(const std::string& program);

// A program could not be started.
class StartError : public std::runtime_error {
 public:
  StartError(const std::string& what, bool lasting) : std::runtime_error(what), lasting_(lasting) {}
  // Trying again would not help: it is not there, or no program. Otherwise something was short: processes,
  // memory, descriptors.
  bool lasting() const { return lasting_; }

 private:
  bool lasting_;
};

// One running child. Not thread-safe; ended and reaped at destruction at the latest.
class ChildProcess {
 public:
  ChildProcess() = default;
  ChildProcess(ChildProcess&& other) noexcept { *this = std::move(other); }
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess() { end(); }

  // Executes arguments[0] (a path) by vfork and exec: no copy of the parent's page tables, whatever
  // libraries it runs. The child ignores SIGINT (Ctrl-C goes to the whole group, and the parent ends
  // its children in order), has every other signal at its default and none blocked, reads
  // /dev/null, and is killed when the calling *thread* ends. Throws StartError when it cannot be
  // executed.
  static ChildProcess start(const std::vector<std::string>& arguments,
                            const std::vector<std::string>& environment);

  bool running() const { return pid_ > 0; }
  pid_t pid() const { return pid_; }
  // Becomes readable when it ends; -1 where the kernel has none (then ask try_reap() by and by).
  int pidfd() const { return pidfd_; }

  // How it ended, as waitpid says, if it has; running() is false from then on. Never blocks.
  // kUnknownStatus when something else in this process took its status.
  std::optional<int> try_reap();
  static constexpr int kUnknownStatus = -1;
  // SIGKILL.
  void kill();

 private:
  void end();
  void forget();

  pid_t pid_ = 0;
  int pidfd_ = -1;
};

// A waitpid status in words: "was killed by SIGKILL", "ended with exit status 3".
std::string describe_exit(int status);

// What a living process is doing right now, as far as the kernel tells: "state S (sleeping), in
// futex_wait, system call 202".
std::string describe_activity(pid_t pid);

// How long a living process's main thread has been ready to run and had no core, in all; zero where the
// kernel does not say. Differences tell a starved process from one that hangs.
std::chrono::nanoseconds waited_for_core(pid_t pid);

}  // namespace gristmill
