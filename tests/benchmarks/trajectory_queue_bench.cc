// What a trajectory costs on its way through the queue, beside a plain memcpy of its bytes.
//
//   trajectory_queue_bench [seconds per row]
//
// The first table counts the thread's CPU time, so that a busy machine matters less. Columns: get+release:
// microseconds of get_many(n) and release() of trajectories that lie ready (no copy: it must not depend on
// their size); put: GB/s of put_many, one at a time; memcpy: GB/s of a plain memcpy of the same bytes
// into a shared mapping of the same size, the two alternating.

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <vector>

#include "core/segment.h"
#include "core/trajectory_queue.h"

namespace gristmill {
namespace {

using Clock = std::chrono::steady_clock;

double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Row {
  double get_us = 0;
  double put_gb = 0;
  double memcpy_gb = 0;
};

// One thread fills the queue and empties it: the put is all copying, the get none.
Row measure(std::size_t bytes, double budget) {
  const auto capacity =
      static_cast<std::int64_t>(std::clamp<std::size_t>((std::size_t{256} << 20) / bytes, 4, 1024));
  const auto count = static_cast<std::size_t>(capacity);
  const FieldSpecs spec{{"data", DType::kUInt8, {static_cast<std::int64_t>(bytes)}}};
  const auto queue =
      TrajectoryQueue::create(segment_name("bench", "q" + std::to_string(bytes)), spec, capacity);
  void* plain = ::mmap(nullptr, count * bytes, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  std::vector<std::byte> source(bytes, std::byte{1});
  const std::byte* const fields[] = {source.data()};

  std::vector<double> gets, puts, copies;
  const auto start = Clock::now();
  for (int round = 0; round < 4 || seconds_since(start) < budget; ++round) {
    double before = cpu_seconds();
    for (std::size_t i = 0; i < count; ++i) queue->put_many(fields, 1, Deadline::never());
    puts.push_back(static_cast<double>(count * bytes) / (cpu_seconds() - before) / 1e9);
    for (std::size_t i = 0; i < 4; ++i) {
      before = cpu_seconds();
      queue->get_many(capacity / 4, Deadline::never()).batch.release();
      gets.push_back((cpu_seconds() - before) * 1e6);
    }
    before = cpu_seconds();
    for (std::size_t i = 0; i < count; ++i) {
      std::memcpy(static_cast<std::byte*>(plain) + i * bytes, source.data(), bytes);
    }
    copies.push_back(static_cast<double>(count * bytes) / (cpu_seconds() - before) / 1e9);
    if (round == 0) puts.clear(), gets.clear(), copies.clear();  // first touches
  }
  ::munmap(plain, count * bytes);
  return {median(gets), median(puts), median(copies)};
}

// Trajectories a second from `producers` processes that only put, taken in batches of 16.
double move_between_processes(std::size_t bytes, int producers, double budget) {
  const FieldSpecs spec{{"data", DType::kUInt8, {static_cast<std::int64_t>(bytes)}}};
  const auto queue = TrajectoryQueue::create(segment_name("bench", "p" + std::to_string(bytes)), spec, 64);
  std::vector<pid_t> children;
  for (int p = 0; p < producers; ++p) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      const std::vector<std::byte> source(bytes, std::byte{1});
      const std::byte* const fields[] = {source.data()};
      while (queue->put_many(fields, 1, Deadline::never()).outcome == TrajectoryQueue::Outcome::kOk) {
      }
      ::_exit(0);
    }
    children.push_back(child);
  }
  for (int warm = 0; warm < 64; ++warm) queue->get_many(16, Deadline::never());
  const auto start = Clock::now();
  std::size_t got = 0;
  while (seconds_since(start) < budget) {
    got += static_cast<std::size_t>(queue->get_many(16, Deadline::never()).batch.size());
  }
  const double rate = static_cast<double>(got) / seconds_since(start);
  queue->close();
  for (const pid_t child : children) ::waitpid(child, nullptr, 0);
  return rate;
}

int run(double budget) {
  std::printf("%12s %12s %10s %13s %8s\n", "bytes", "get+rel us", "put GB/s", "memcpy GB/s", "ratio");
  for (std::size_t bytes = 4096; bytes <= std::size_t{64} << 20; bytes *= 4) {
    const Row row = measure(bytes, budget);
    std::printf("%12zu %12.2f %10.2f %13.2f %8.2f\n", bytes, row.get_us, row.put_gb, row.memcpy_gb,
                row.put_gb / row.memcpy_gb);
  }
  std::printf("\n%12s %10s %16s %10s\n", "bytes", "producers", "trajectories/s", "GB/s");
  for (const std::size_t bytes :
       {std::size_t{64}, std::size_t{4096}, std::size_t{65536}, std::size_t{1} << 20}) {
    for (const int producers : {1, 2, 8}) {
      const double rate = move_between_processes(bytes, producers, budget);
      std::printf("%12zu %10d %16.0f %10.2f\n", bytes, producers, rate,
                  rate * static_cast<double>(bytes) / 1e9);
    }
  }
  return 0;
}

}  // namespace
}  // namespace gristmill

int main(int argc, char** argv) { return gristmill::run(argc > 1 ? std::atof(argv[1]) : 0.5); }
