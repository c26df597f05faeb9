// What `gristmill bench pipeline` reckons its limit from: how fast this machine's memory takes a worker's
// frames and trajectories, with nothing else to do.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <system_error>
#include <vector>

#include "python/bindings/bindings.h"

namespace gristmill::python {
namespace {

using Clock = std::chrono::steady_clock;

// Shared pages of the size that segments have, all of them there: private memory may have huge ones.
class SharedPages {
 public:
  explicit SharedPages(std::size_t bytes) : bytes_(bytes) {
    const int fd = ::memfd_create("gristmill-memory-speed", MFD_CLOEXEC);
    if (fd < 0) throw std::system_error(errno, std::generic_category(), "memfd_create");
    const int error = ::posix_fallocate(fd, 0, static_cast<off_t>(bytes));
    void* data = MAP_FAILED;
    if (error == 0) data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    const int map_error = errno;
    ::close(fd);
    if (data == MAP_FAILED) {
      throw std::system_error(error != 0 ? error : map_error, std::generic_category(),
                              std::to_string(bytes) + " bytes of memory");
    }
    data_ = static_cast<std::byte*>(data);
  }
  SharedPages(const SharedPages&) = delete;
  SharedPages& operator=(const SharedPages&) = delete;
  ~SharedPages() { ::munmap(data_, bytes_); }

  std::byte* at(std::size_t byte) const { return data_ + byte; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_;
};

double nanoseconds(Clock::duration time) { return std::chrono::duration<double, std::nano>(time).count(); }

// The time that a tenth of the rounds stayed below: what a round costs when nobody disturbs it.
double undisturbed(std::vector<double>& rounds) {
  const auto tenth = rounds.begin() + static_cast<std::ptrdiff_t>(rounds.size() / 10);
  std::ranges::nth_element(rounds, tenth);
  return *tenth;
}

struct MemorySpeed {
  double write_frame_ns;  // memset of one observation
  double copy_trajectory_ns;
};

MemorySpeed memory_speed(std::size_t frame, std::size_t envs, std::size_t unroll, std::size_t capacity,
                         double seconds) {
  if (frame == 0 || envs == 0 || unroll == 0 || capacity < envs || !(seconds > 0)) {
    throw py::value_error(
        "memory_speed: expected sizes of at least 1, capacity of at least envs, seconds > 0");
  }
  const py::gil_scoped_release release;
  const std::size_t trajectory = frame * (unroll + 1);
  std::vector<std::byte> buffer(trajectory * envs, std::byte{1});
  const SharedPages ring(trajectory * capacity);
  std::vector<double> writes, copies;
  std::size_t place = 0;
  int shade = 0;
  const auto end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  while (writes.empty() || Clock::now() < end) {
    const auto begin = Clock::now();
    for (std::size_t t = 1; t <= unroll; ++t) {
      for (std::size_t env = 0; env < envs; ++env) {
        std::memset(buffer.data() + env * trajectory + t * frame, ++shade & 0xff, frame);
      }
    }
    const auto middle = Clock::now();
    if (place + envs > capacity) place = 0;
    std::memcpy(ring.at(place * trajectory), buffer.data(), buffer.size());
    place += envs;
    writes.push_back(nanoseconds(middle - begin));
    copies.push_back(nanoseconds(Clock::now() - middle));
  }
  return {undisturbed(writes) / static_cast<double>(envs * unroll),
          undisturbed(copies) / static_cast<double>(envs)};
}

}  // namespace

void bind_memory_speed(py::module_& module) {
  module.def(
      "memory_speed",
      [](std::size_t frame, std::size_t envs, std::size_t unroll, std::size_t capacity, double seconds) {
        const MemorySpeed speed = memory_speed(frame, envs, unroll, capacity, seconds);
        return py::make_tuple(speed.write_frame_ns, speed.copy_trajectory_ns);
      },
      py::arg("frame_bytes"), py::arg("envs"), py::arg("unroll"), py::arg("capacity"), py::arg("seconds"),
      "(ns to write one observation, ns to copy one trajectory of unroll + 1 of them): memset into a "
      "worker's "
      "buffer, step by step for each environment, then one memcpy of all trajectories into a ring of "
      "`capacity` in shared memory, over and over, as a worker does it. Of each, the time that a tenth of "
      "the "
      "rounds stayed below.");
}

}  // namespace gristmill::python
