#include "rollout/loader_check.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <sstream>

#include "core/deadline.h"

namespace gristmill {

namespace {

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& s : strings) result.push_back(s.data());
  result.push_back(nullptr);
  return result;
}

// ldd's way: with this variable set, the loader lists what it finds and does not start the program. Only what
// begins like an ELF file is asked: anything else would run.
bool is_elf(const std::string& program) {
  std::array<char, 4> magic{};
  const int fd = ::open(program.c_str(), O_RDONLY | O_CLOEXEC);
  const ssize_t got = fd < 0 ? -1 : ::read(fd, magic.data(), magic.size());
  if (fd >= 0) ::close(fd);
  return got == 4 && magic == std::array<char, 4>{'\x7f', 'E', 'L', 'F'};
}

std::string read_all(int fd, Deadline deadline) {
  std::string text;
  std::array<char, 4096> part{};
  while (text.size() < 65536) {
    pollfd wanted{fd, POLLIN, 0};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.left()).count();
    if (left <= 0) break;
    const int ready = ::poll(&wanted, 1, static_cast<int>(left));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) break;
    const ssize_t got = ::read(fd, part.data(), part.size());
    if (got <= 0) break;
    text.append(part.data(), static_cast<std::size_t>(got));
  }
  return text;
}

}  // namespace

bool never_ran(int exit_status) { return exit_status == 126 || exit_status == 127; }

std::vector<std::string> missing_libraries(const std::string& program,
                                           const std::vector<std::string>& environment) {
  int ends[2];
  if (!is_elf(program) || ::pipe2(ends, O_CLOEXEC) != 0) return {};
  std::vector<std::string> variables = environment;
  variables.emplace_back("LD_TRACE_LOADED_OBJECTS=1");
  std::vector<std::string> arguments{program};
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t pid = 0;
  const int failed = ::posix_spawn(&pid, program.c_str(), &actions, nullptr, pointers(arguments).data(),
                                   pointers(variables).data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  std::vector<std::string> missing;
  if (failed == 0) {
    std::istringstream lines(read_all(ends[0], Deadline::in(std::chrono::seconds(1))));
    ::kill(pid, SIGKILL);
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    for (std::string line; std::getline(lines, line);) {
      const std::size_t end = line.find(" => not found");
      if (end == std::string::npos) continue;
      const std::size_t begin = line.find_first_not_of(" \t");
      missing.push_back(line.substr(begin, end - begin));
    }
  }
  ::close(ends[0]);
  return missing;
}

}  // namespace gristmill
