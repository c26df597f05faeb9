#include "core/process_identity.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>

#include "core/fault_point.h"

namespace gristmill {
namespace {

constexpr int kPidBits = 22;  // the kernel's PID_MAX_LIMIT is 2^22
constexpr std::uint64_t kPidMask = (std::uint64_t{1} << kPidBits) - 1;
constexpr std::uint64_t kStartTimeMask = (std::uint64_t{1} << (64 - kPidBits)) - 1;

struct ProcStat {
  enum class Read { kOk, kGone, kUnreadable };
  Read read = Read::kUnreadable;
  std::int64_t pid = 0;
  char state = '?';
  long threads = 0;
  std::uint64_t start_time = 0;
};

ProcStat read_stat(const char* path) {
  ProcStat stat;
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    stat.read = errno == ENOENT || errno == ESRCH ? ProcStat::Read::kGone : ProcStat::Read::kUnreadable;
    return stat;
  }
  char text[2048];
  ssize_t length;
  do {
    length = ::read(fd, text, sizeof text - 1);
  } while (length < 0 && errno == EINTR);
  const int error = errno;
  ::close(fd);
  if (length <= 0) {
    if (length < 0 && error == ESRCH) stat.read = ProcStat::Read::kGone;
    return stat;
  }
  text[length] = '\0';
  // "pid (name) state ppid … num_threads(20) itrealvalue start_time(22) …"; the name may hold
  // spaces and brackets, so fields are counted from the last bracket.
  char* rest = std::strrchr(text, ')');
  if (rest == nullptr || rest[1] != ' ') return stat;
  stat.pid = std::strtoll(text, nullptr, 10);
  stat.state = rest[2];
  char* save = nullptr;
  int number = 3;
  for (char* word = ::strtok_r(rest + 2, " ", &save); word != nullptr;
       word = ::strtok_r(nullptr, " ", &save), ++number) {
    if (number == 20) stat.threads = std::strtol(word, nullptr, 10);
    if (number == 22) {
      stat.start_time = std::strtoull(word, nullptr, 10);
      stat.read = ProcStat::Read::kOk;
      break;
    }
  }
  return stat;
}

// A word that every fork's child finds zeroed, whichever call forked it; null where the kernel
// cannot do that (then nothing is cached).
std::atomic<std::uint64_t>* cache() {
  static std::atomic<std::uint64_t>* const word = []() -> std::atomic<std::uint64_t>* {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    void* memory = ::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    if (::madvise(memory, page, MADV_WIPEONFORK) != 0) {
      ::munmap(memory, page);
      return nullptr;
    }
    return new (memory) std::atomic<std::uint64_t>(0);
  }();
  return word;
}

constinit const std::atomic<std::uint64_t> kUnknown{0};

ProcessIdentity read_self() {
  errno = 0;
  const ProcStat stat = read_stat("/proc/self/stat");
  if (stat.read != ProcStat::Read::kOk) {
    throw std::runtime_error(std::string("cannot read /proc/self/stat") +
                             (errno == EMFILE || errno == ENFILE
                                  ? ": too many open files; raise `ulimit -n`"
                                  : ": expected /proc to be mounted (processes are told apart by their start "
                                    "time)"));
  }
  if (stat.pid != ::getpid()) {
    throw std::runtime_error("/proc shows this process as " + std::to_string(stat.pid) + " but its pid is " +
                             std::to_string(::getpid()) +
                             ": mount the /proc of this pid namespace (unshare --mount-proc)");
  }
  return {stat.pid, stat.start_time & kStartTimeMask};
}

// `start_time`: that of the process which is meant, if it is known.
bool is_dead(std::int64_t pid, std::optional<std::uint64_t> start_time) {
  if (pid <= 0) return false;
#ifdef GRISTMILL_FAULT_POINTS
  if (fault::recovery_disabled()) return false;
#endif
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%lld/stat", static_cast<long long>(pid));
  const ProcStat stat = read_stat(path);
  switch (stat.read) {
    case ProcStat::Read::kUnreadable:
      return false;
    case ProcStat::Read::kGone:
      // A /proc mounted with hidepid hides living processes too: the kernel's word decides.
      return ::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH;
    case ProcStat::Read::kOk:
      break;
  }
  if (start_time && (stat.start_time & kStartTimeMask) != *start_time) return true;
  // A leader that ended with pthread_exit is shown as a zombie while its other threads live on.
  return (stat.state == 'Z' || stat.state == 'X') && stat.threads <= 1;
}

}  // namespace

constinit std::atomic<const std::atomic<std::uint64_t>*> ProcessIdentity::cached_{&kUnknown};

ProcessIdentity ProcessIdentity::self() {
  std::atomic<std::uint64_t>* const cached = cache();
  if (cached != nullptr) {
    cached_.store(cached, std::memory_order_relaxed);
    const std::uint64_t word = cached->load(std::memory_order_relaxed);
    if (word != 0) return unpack(word);
  }
  const ProcessIdentity identity = read_self();
  if (cached != nullptr) cached->store(identity.pack(), std::memory_order_relaxed);
  return identity;
}

std::uint64_t ProcessIdentity::pack() const {
  return (start_time << kPidBits) | (static_cast<std::uint64_t>(pid) & kPidMask);
}

ProcessIdentity ProcessIdentity::unpack(std::uint64_t word) {
  return {static_cast<std::int64_t>(word & kPidMask), word >> kPidBits};
}

bool ProcessIdentity::proved_dead() const { return is_dead(pid, start_time); }
bool ProcessIdentity::is_gone(std::int64_t pid) { return is_dead(pid, std::nullopt); }

std::uint64_t identity_namespace() {
  struct stat pid_namespace {};
  if (::stat("/proc/self/ns/pid", &pid_namespace) != 0) {
    throw std::runtime_error(std::string("cannot stat /proc/self/ns/pid (") + std::strerror(errno) +
                             "): expected /proc to be mounted");
  }
  struct stat time_namespace {};  // absent before Linux 5.6: one clock for all then
  if (::stat("/proc/self/ns/time", &time_namespace) != 0) time_namespace.st_ino = 0;
  const auto word = static_cast<std::uint64_t>(pid_namespace.st_ino) * 0x9E3779B97F4A7C15ull ^
                    static_cast<std::uint64_t>(time_namespace.st_ino);
  return word == 0 ? 1 : word;
}

}  // namespace gristmill
