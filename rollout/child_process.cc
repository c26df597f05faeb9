#include "rollout/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace gristmill {

namespace {

// A file descriptor that closes, never 0, 1 or 2 (a parent may run with those closed).
class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {
    if (fd_ < 0 || fd_ > STDERR_FILENO) return;
    const int moved = ::fcntl(fd_, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    ::close(fd_);
    fd_ = moved;
  }
  ~Fd() { reset(); }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  void reset() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

struct Launch {
  const char* path;
  char* const* arguments;
  char* const* environment;
  int null_fd;
  int error_fd;  // closed by a successful exec, else receives errno
  pid_t parent;
};

// Between vfork and exec: shares the parent's memory, so only system calls, and nothing allocated.
[[noreturn]] void run_child(const Launch& launch) {
  struct sigaction action {};
  for (int signal = 1; signal <= SIGRTMAX; ++signal) {
    action.sa_handler = signal == SIGINT ? SIG_IGN : SIG_DFL;
    ::sigaction(signal, &action, nullptr);  // fails for SIGKILL and SIGSTOP, as it may
  }
  // Survives exec, so that it covers the time until the worker says the same (die_with_parent).
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != launch.parent) ::_exit(1);
  ::dup2(launch.null_fd, STDIN_FILENO);
  constexpr unsigned kSetCloseOnExec = 1u << 2;  // CLOSE_RANGE_CLOEXEC: error_fd must live until then
  if (::syscall(SYS_close_range, STDERR_FILENO + 1, UINT_MAX, kSetCloseOnExec) != 0) {
    for (int fd = STDERR_FILENO + 1; fd < 4096; ++fd) ::fcntl(fd, F_SETFD, FD_CLOEXEC);  // Linux < 5.11
  }
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execve(launch.path, launch.arguments, launch.environment);
  const int error = errno;
  [[maybe_unused]] const ssize_t written = ::write(launch.error_fd, &error, sizeof error);
  ::_exit(127);
}

// A frame of its own, that does not return in the child.
__attribute__((noinline)) pid_t launch_child(const Launch& launch) {
  const pid_t pid = ::vfork();
  if (pid == 0) run_child(launch);
  return pid;
}

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (const std::string& s : strings) result.push_back(const_cast<char*>(s.c_str()));
  result.push_back(nullptr);
  return result;
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

std::vector<std::string> worker_environment() {
  std::vector<std::string> result;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) result.emplace_back(*entry);
  for (const char* name : {"OMP_NUM_THREADS", "MKL_NUM_THREADS"}) {
    if (std::getenv(name) == nullptr) result.push_back(std::string(name) + "=1");
  }
  return result;
}

std::string find_program(const std::string& program) {
  if (program.find('/') != std::string::npos) {
    if (::access(program.c_str(), X_OK) == 0) return program;
    throw std::runtime_error("cannot start '" + program + "': " + ::strerror(errno) +
                             " (expected an executable file)");
  }
  const char* path = std::getenv("PATH");
  const std::string where = path == nullptr ? "/usr/local/bin:/usr/bin:/bin" : path;
  std::istringstream folders(where);
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::string candidate = (folder.empty() ? "." : folder) + "/" + program;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  throw std::runtime_error("cannot start '" + program + "': no such program in PATH (" + where + ")");
}

ChildProcess ChildProcess::start(const std::vector<std::string>& arguments,
                                 const std::vector<std::string>& environment) {
  int ends[2];
  const Fd null_fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (null_fd.get() < 0 || ::pipe2(ends, O_CLOEXEC) != 0) {
    throw StartError("cannot start '" + arguments.at(0) + "': " + ::strerror(errno), false);
  }
  const Fd error_out(ends[0]);
  Fd error_in(ends[1]);
  const std::vector<char*> argv = pointers(arguments);
  const std::vector<char*> envp = pointers(environment);
  const Launch launch{argv[0], argv.data(), envp.data(), null_fd.get(), error_in.get(), ::getpid()};

  // No handler of the parent's may run in the child while they share memory.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = launch_child(launch);
  const int fork_error = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) {
    throw StartError("cannot start '" + arguments[0] + "': " + ::strerror(fork_error) +
                         " (the limit of processes or of memory is reached)",
                     false);
  }
  ChildProcess child;
  child.pid_ = pid;
  // The pid cannot be another's: it is ours to reap.
  child.pidfd_ = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));

  error_in.reset();
  int exec_error = 0;
  ssize_t got = 0;
  do {
    got = ::read(error_out.get(), &exec_error, sizeof exec_error);
  } while (got < 0 && errno == EINTR);
  if (got == sizeof exec_error) {
    const bool short_of_something = exec_error == EAGAIN || exec_error == ENOMEM || exec_error == ENFILE ||
                                    exec_error == EMFILE || exec_error == ETXTBSY || exec_error == EINTR;
    throw StartError("cannot start '" + arguments[0] + "': " + ::strerror(exec_error), !short_of_something);
  }
  return child;
}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  if (this != &other) {
    end();
    pid_ = std::exchange(other.pid_, 0);
    pidfd_ = std::exchange(other.pidfd_, -1);
  }
  return *this;
}

void ChildProcess::end() {
  if (pid_ <= 0) return;
  kill();
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  forget();
}

void ChildProcess::forget() {
  pid_ = 0;
  if (pidfd_ >= 0) ::close(std::exchange(pidfd_, -1));
}

std::optional<int> ChildProcess::try_reap() {
  if (pid_ <= 0) return std::nullopt;
  int status = 0;
  const pid_t reaped = ::waitpid(pid_, &status, WNOHANG);
  if (reaped == 0 || (reaped < 0 && errno == EINTR)) return std::nullopt;
  forget();
  // ECHILD: SIGCHLD is ignored in this process, or somebody waits for every child.
  return reaped < 0 ? kUnknownStatus : status;
}

void ChildProcess::kill() {
  if (pid_ <= 0) return;
  if (pidfd_ >= 0 && ::syscall(SYS_pidfd_send_signal, pidfd_, SIGKILL, nullptr, 0) == 0) return;
  ::kill(pid_, SIGKILL);
}

std::string describe_exit(int status) {
  if (status == ChildProcess::kUnknownStatus) {
    return "ended (how is unknown: SIGCHLD is ignored, or something else in this process waits for all "
           "children)";
  }
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    const char* name = ::sigabbrev_np(signal);
    std::string text =
        "was killed by " + (name != nullptr ? std::string("SIG") + name : "signal " + std::to_string(signal));
    if (WCOREDUMP(status)) text += " (core dumped)";
    return text;
  }
  return "ended with exit status " + std::to_string(WEXITSTATUS(status));
}

std::string describe_activity(pid_t pid) {
  const std::string proc = "/proc/" + std::to_string(pid) + "/";
  std::string text;
  std::ifstream status(proc + "status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("State:\t", 0) == 0) text = "state " + line.substr(7);
  }
  if (text.empty()) return "it has ended meanwhile";
  const std::string wchan = first_line(proc + "wchan");
  if (!wchan.empty() && wchan != "0") text += ", in " + wchan;
  const std::string call = first_line(proc + "syscall");
  if (!call.empty() && call[0] >= '0' && call[0] <= '9')
    text += ", system call " + call.substr(0, call.find(' '));
  return text;
}

std::chrono::nanoseconds waited_for_core(pid_t pid) {
  std::ifstream schedstat("/proc/" + std::to_string(pid) + "/schedstat");
  std::int64_t ran = 0;
  std::int64_t waited = 0;
  schedstat >> ran >> waited;
  return std::chrono::nanoseconds(schedstat ? waited : 0);
}

}  // namespace gristmill
