// What lies in /dev/shm: space left, segments, and the removal of those whose owner is dead.

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "core/segment.h"
#include "core/segment_name.h"

namespace gristmill {
namespace {

constexpr const char* kDirectory = "/dev/shm";

}  // namespace

std::size_t shared_memory_available() {
  struct statvfs status {};
  int result;
  do {
    result = ::statvfs(kDirectory, &status);
  } while (result != 0 && errno == EINTR);
  if (result != 0) {
    throw SegmentError(SegmentError::Reason::kSystem, std::string("cannot look at /dev/shm: ") +
                                                          std::strerror(errno) +
                                                          "; expected a tmpfs to be mounted there");
  }
  if (status.f_blocks == 0) return std::numeric_limits<std::size_t>::max();
  return static_cast<std::size_t>(status.f_bavail) * status.f_frsize;
}

std::vector<SegmentInfo> list_segments() {
  std::vector<SegmentInfo> segments;
  DIR* directory = ::opendir(kDirectory);
  if (directory == nullptr) return segments;
  while (const dirent* entry = ::readdir(directory)) {
    const std::string name = std::string("/") + entry->d_name;
    const auto parsed = SegmentName::parse(name);
    if (!parsed) continue;
    struct stat status {};
    if (::fstatat(::dirfd(directory), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (!S_ISREG(status.st_mode) || status.st_uid != ::geteuid()) continue;
    segments.push_back({name, parsed->owner, static_cast<std::size_t>(status.st_size), parsed->judgeable(),
                        parsed->owner_proved_dead()});
  }
  ::closedir(directory);
  std::sort(segments.begin(), segments.end(),
            [](const SegmentInfo& a, const SegmentInfo& b) { return a.name < b.name; });
  return segments;
}

std::vector<SegmentInfo> sweep_segments() {
  std::vector<SegmentInfo> swept;
  for (SegmentInfo& segment : list_segments()) {
    // The dead do not come back, and names carry their owner: nobody can have taken this one since.
    if (segment.dead && ::unlink((std::string(kDirectory) + segment.name).c_str()) == 0) {
      swept.push_back(std::move(segment));
    }
  }
  return swept;
}

}  // namespace gristmill
