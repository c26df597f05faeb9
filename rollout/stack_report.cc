#include "rollout/stack_report.h"

#include <cxxabi.h>
#include <dirent.h>
#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <memory>
#include <sstream>
#include <utility>
#include <vector>

#include "rollout/elf_symbols.h"

namespace gristmill {

namespace {

constexpr const char* kFile = "gristmill-stack";
constexpr std::size_t kMostBytes = 65536;
constexpr std::size_t kMostFrames = 40;

int stack_file = -1;  // set before the handler is installed

// Only what may run in a signal handler: backtrace() was called once before, which loads what it needs.
void write_stack(int) {
  const int error = errno;
  std::array<void*, kMostFrames> frames{};
  const int count = ::backtrace(frames.data(), static_cast<int>(frames.size()));
  constexpr int kOwn = 2;  // this function and the kernel's trampoline
  if (count > kOwn) ::backtrace_symbols_fd(frames.data() + kOwn, count - kOwn, stack_file);
  errno = error;
}

bool answers(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("SigCgt:", 0) != 0) continue;
    const std::uint64_t caught = std::strtoull(line.c_str() + 7, nullptr, 16);
    return (caught >> (stack_signal() - 1) & 1u) != 0;
  }
  return false;
}

// The process's file, opened anew: with a position of its own. -1 when it has none.
int open_file_of(pid_t pid) {
  const std::string folder = "/proc/" + std::to_string(pid) + "/fd";
  DIR* const listing = ::opendir(folder.c_str());
  if (listing == nullptr) return -1;
  int found = -1;
  while (const dirent* const entry = ::readdir(listing)) {
    const std::string path = folder + "/" + entry->d_name;
    std::array<char, 256> target{};
    if (::readlink(path.c_str(), target.data(), target.size() - 1) <= 0) continue;
    if (std::string(target.data()).rfind(std::string("/memfd:") + kFile, 0) != 0) continue;
    found = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (found >= 0) break;
  }
  ::closedir(listing);
  return found;
}

// "./worker(_ZN3foo3barEv+0x1c)[0x55d5]" or, of a function that only the full symbol table names,
// "./worker(+0x41c)[0x55d5]" -> "foo::bar() in ./worker"; "./worker+0x41c" when nothing names it.
std::string readable(const std::string& line) {
  const std::size_t open = line.find('(');
  const std::size_t close = line.find(')', open);
  if (open == std::string::npos || close == std::string::npos) return line;
  const std::string module = line.substr(0, open);
  const std::string inside = line.substr(open + 1, close - open - 1);
  const std::size_t plus = inside.rfind('+');
  std::string symbol = inside.substr(0, plus);
  if (symbol.empty() && plus != std::string::npos) {
    // The address is where the call returns to, which may be behind the function's end.
    symbol = function_at(module, std::strtoull(inside.c_str() + plus + 1, nullptr, 16) - 1);
  }
  if (symbol.empty()) return module + inside;
  int status = 0;
  const std::unique_ptr<char, decltype(&::free)> name(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), &::free);
  return (status == 0 ? std::string(name.get()) : symbol) + " in " + module;
}

// faulthandler's `  File "/home/me/env.py", line 12 in step` -> "step at /home/me/env.py:12".
std::optional<std::string> python_frame(const std::string& line) {
  const std::string begin = "  File \"", middle = "\", line ", end = " in ";
  if (line.rfind(begin, 0) != 0) return std::nullopt;
  const std::size_t path = line.find(middle);
  if (path == std::string::npos) return std::nullopt;
  const std::size_t number = path + middle.size();
  const std::size_t name = line.find(end, number);
  if (name == std::string::npos) return std::nullopt;
  return line.substr(name + end.size()) + " at " + line.substr(begin.size(), path - begin.size()) + ":" +
         line.substr(number, name - number);
}

}  // namespace

int stack_signal() { return SIGRTMIN + 7; }

bool report_stacks() {
  stack_file = static_cast<int>(::syscall(SYS_memfd_create, kFile, MFD_CLOEXEC));
  if (stack_file < 0) return false;
  std::array<void*, 4> ignored{};
  ::backtrace(ignored.data(), static_cast<int>(ignored.size()));
  struct sigaction action {};
  action.sa_handler = &write_stack;
  action.sa_flags = SA_RESTART;
  return ::sigaction(stack_signal(), &action, nullptr) == 0;
}

StackRequest::StackRequest(pid_t pid) {
  if (!answers(pid)) return;
  fd_ = open_file_of(pid);
  struct stat status {};
  if (fd_ < 0 || ::fstat(fd_, &status) != 0) return;
  before_ = status.st_size;
  // To its main thread, which is the one that steps the environments.
  ::syscall(SYS_tgkill, pid, pid, stack_signal());
}

StackRequest::StackRequest(StackRequest&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), before_(other.before_) {}

StackRequest::~StackRequest() {
  if (fd_ >= 0) ::close(fd_);
}

std::optional<StackRequest::Stack> StackRequest::collect() const {
  if (fd_ < 0) return std::nullopt;
  std::string text(kMostBytes, '\0');
  const ssize_t got = ::pread(fd_, text.data(), text.size(), before_);
  if (got <= 0) return std::nullopt;
  text.resize(static_cast<std::size_t>(got));
  return parse_stack(text);
}

std::optional<StackRequest::Stack> parse_stack(const std::string& text) {
  std::vector<std::string> frames;
  std::istringstream lines(text);
  // faulthandler writes all threads, the one that got the signal marked so.
  const bool python = text.find("(most recent call first)") != std::string::npos;
  bool current = !python;
  for (std::string line; std::getline(lines, line) && frames.size() < kMostFrames;) {
    if (python && line.find("hread 0x") != std::string::npos) {
      current = line.rfind("Current thread", 0) == 0;
    } else if (current && python) {
      if (auto frame = python_frame(line)) frames.push_back(std::move(*frame));
    } else if (current && !line.empty()) {
      frames.push_back(readable(line));
    }
  }
  if (frames.empty()) return std::nullopt;
  StackRequest::Stack stack{.where = frames.front(), .frames = {}};
  for (const std::string& frame : frames) stack.frames += "    " + frame + "\n";
  return stack;
}

}  // namespace gristmill
