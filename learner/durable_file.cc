#include "learner/durable_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

namespace gristmill {
namespace {

[[noreturn]] void fail(const char* doing, const std::filesystem::path& path, int error = errno) {
  throw std::system_error(error, std::generic_category(), std::string(doing) + " " + path.string());
}

class Descriptor {
 public:
  Descriptor(const std::filesystem::path& path, int flags)
      : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  bool open() const { return fd_ >= 0; }

 private:
  int fd_;
};

void sync(const Descriptor& file, const std::filesystem::path& path) {
  while (::fsync(file.get()) != 0) {
    if (errno != EINTR) fail("cannot bring to the disk", path);
  }
}

}  // namespace

void write_file_durably(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  // The kernel answers a file over this limit with a signal that kills the process.
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      bytes.size() > limit.rlim_cur) {
    fail("cannot write (raise `ulimit -f`)", path, EFBIG);
  }
  const Descriptor file(path, O_WRONLY | O_CREAT | O_EXCL);
  if (!file.open()) fail("cannot create", path);
  while (!bytes.empty()) {
    const ssize_t written = ::write(file.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("cannot write", path);
    if (written == 0) fail("cannot write", path, ENOSPC);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  sync(file, path);
}

void sync_directory(const std::filesystem::path& directory) {
  const Descriptor handle(directory, O_RDONLY | O_DIRECTORY);
  if (!handle.open()) fail("cannot open", directory);
  sync(handle, directory);
}

std::vector<std::byte> read_file(const std::filesystem::path& path) {
  // O_NONBLOCK: a pipe of that name must not hold us before it is refused.
  const Descriptor file(path, O_RDONLY | O_NONBLOCK);
  if (!file.open()) fail("cannot open", path);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail("cannot examine", path);
  if (!S_ISREG(status.st_mode))
    fail("cannot read (not a regular file)", path, S_ISDIR(status.st_mode) ? EISDIR : EINVAL);
  std::vector<std::byte> bytes(static_cast<std::size_t>(status.st_size));
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = ::read(file.get(), bytes.data() + done, bytes.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("cannot read", path);
    if (got == 0) break;  // it shrank meanwhile: whoever checks the bytes will tell
    done += static_cast<std::size_t>(got);
  }
  bytes.resize(done);
  return bytes;
}

}  // namespace gristmill
