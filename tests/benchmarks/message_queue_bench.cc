// What a message costs on its way through the queue: in one process, between processes, large and small.
//
//   message_queue_bench [seconds per row]
//
// Times of one process are of its thread's CPU clock, so that a busy machine matters less; those
// between processes are of the wall clock. The load average is printed first: say it with the figures.

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/message_queue.h"
#include "core/segment.h"

namespace gristmill {
namespace {

using Clock = std::chrono::steady_clock;
using Bytes = std::span<const std::byte>;
using Outcome = MessageQueue::Outcome;

double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1))];
}

std::unique_ptr<MessageQueue> fresh_queue(std::uint64_t bytes) {
  static int number = 0;
  MessageQueueOptions options;
  options.max_size_bytes = bytes;
  return MessageQueue::create(segment_name("bench", "m" + std::to_string(number++)), options);
}

pid_t in_child(const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  body();
  ::_exit(0);
}

enum class How { kOneByOne, kMany };

const char* name_of(How how) { return how == How::kMany ? "many" : "one"; }

// Puts `count` messages like `message`, one by one or 1000 at a time.
void put_all(MessageQueue& queue, Bytes message, std::uint64_t count, How how) {
  const std::vector<Bytes> many(1000, message);
  for (std::uint64_t done = 0; done < count;) {
    if (how == How::kOneByOne) {
      queue.put(message, Deadline::never());
      ++done;
    } else {
      const std::size_t n = std::min<std::uint64_t>(many.size(), count - done);
      queue.put_many({many.data(), n}, Deadline::never());
      done += n;
    }
  }
}

std::uint64_t get_all(MessageQueue& queue, How how) {
  MessageBuffer buffer;
  std::uint64_t got = 0;
  while (queue.get_many(how == How::kMany ? 1000 : 1, MessageQueue::kNoLimit, buffer, Deadline::never()) ==
         Outcome::kOk) {
    got += buffer.size();
  }
  return got;
}

// Nanoseconds a message, of a thread that puts 1000 and takes them.
double in_one_process(How put, How get, double budget) {
  const auto queue = fresh_queue(std::size_t{1} << 20);
  const std::array<std::byte, 22> message{};
  MessageBuffer buffer;
  std::vector<double> rounds;
  const auto start = Clock::now();
  while (rounds.size() < 20 || seconds_since(start) < budget) {
    const double before = cpu_seconds();
    put_all(*queue, message, 1000, put);
    for (std::size_t got = 0; got < 1000; got += buffer.size()) {
      queue->get_many(get == How::kMany ? 1000 : 1, MessageQueue::kNoLimit, buffer, Deadline::never());
    }
    rounds.push_back((cpu_seconds() - before) * 1e6);
  }
  return quantile(rounds, 0.5);
}

// Millions of messages a second of 22 bytes, from `producers` processes to `consumers`.
double between_processes(int producers, int consumers, How put, How get, std::uint64_t each) {
  const auto queue = fresh_queue(std::size_t{8} << 20);
  const std::array<std::byte, 22> message{};
  const auto start = Clock::now();
  std::vector<pid_t> sources;
  std::vector<pid_t> sinks;
  for (int i = 0; i < consumers; ++i) sinks.push_back(in_child([&] { get_all(*queue, get); }));
  for (int i = 0; i < producers; ++i)
    sources.push_back(in_child([&] { put_all(*queue, message, each, put); }));
  for (const pid_t child : sources) ::waitpid(child, nullptr, 0);
  queue->close();
  for (const pid_t child : sinks) ::waitpid(child, nullptr, 0);
  const double seconds = seconds_since(start);
  const auto gets = queue->statistics().gets;
  if (gets != each * static_cast<std::uint64_t>(producers)) std::printf("  %zu were lost!\n", gets);
  return static_cast<double>(gets) / seconds / 1e6;
}

// GB/s of one thread that puts and takes, beside two plain memcpys of as many bytes.
struct Bandwidth {
  double copied = 0;
  double in_place = 0;
  double memcpys = 0;
};
Bandwidth payload(std::size_t bytes, double budget) {
  constexpr std::size_t kRing = std::size_t{64} << 20;
  const auto queue = fresh_queue(kRing);
  const std::size_t batch = std::max<std::size_t>(1, (std::size_t{256} << 10) / bytes);
  const std::vector<std::byte> message(bytes, std::byte{1});
  void* memory =
      ::mmap(nullptr, kRing, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  auto* const plain = static_cast<std::byte*>(memory);
  std::vector<std::byte> out(bytes);
  MessageBuffer buffer;
  std::vector<double> copied, in_place, memcpys;
  std::size_t at = 0;
  const auto start = Clock::now();
  const auto timed = [&](std::vector<double>& into, const auto& body) {
    const double before = cpu_seconds();
    body();
    into.push_back(static_cast<double>(batch * bytes) / (cpu_seconds() - before) / 1e9);
  };
  for (int round = 0; round < 20 || seconds_since(start) < budget; ++round) {
    timed(copied, [&] {
      for (std::size_t i = 0; i < batch; ++i) queue->put(message, Deadline::never());
      for (std::size_t i = 0; i < batch; i += buffer.size()) {
        queue->get_many(1000, MessageQueue::kNoLimit, buffer, Deadline::never());
      }
    });
    timed(in_place, [&] {
      for (std::size_t i = 0; i < batch; ++i) queue->put(message, Deadline::never());
      for (std::size_t i = 0; i < batch;) {
        i += queue->take(1000, MessageQueue::kNoLimit, Deadline::never()).batch.size();
      }
    });
    timed(memcpys, [&] {
      const std::size_t from = at;
      for (std::size_t i = 0; i < batch; ++i, at += bytes) {
        if (at + bytes > kRing) at = 0;
        std::memcpy(plain + at, message.data(), bytes);
      }
      for (std::size_t i = 0, p = from; i < batch; ++i, p += bytes) {
        if (p + bytes > kRing) p = 0;
        std::memcpy(out.data(), plain + p, bytes);
      }
    });
  }
  ::munmap(memory, kRing);
  return {quantile(copied, 0.5), quantile(in_place, 0.5), quantile(memcpys, 0.5)};
}

// Microseconds from a put until the answer is there, both sides asleep in between.
std::array<double, 2> round_trip(double budget) {
  const auto there = fresh_queue(4096);
  const auto back = fresh_queue(4096);
  const pid_t child = in_child([&] {
    MessageBuffer buffer;
    while (there->get(buffer, Deadline::never()) == Outcome::kOk) back->put(buffer[0], Deadline::never());
  });
  std::vector<double> times;
  const std::array<std::byte, 22> message{};
  MessageBuffer buffer;
  const auto start = Clock::now();
  while (seconds_since(start) < 2 * budget || times.size() < 100) {
    ::usleep(300);
    const auto sent = Clock::now();
    there->put(message, Deadline::never());
    back->get(buffer, Deadline::never());
    times.push_back(seconds_since(sent) * 1e6);
  }
  there->close();
  ::waitpid(child, nullptr, 0);
  return {quantile(times, 0.5), quantile(times, 0.99)};
}

int run(double budget) {
  double load[3] = {};
  ::getloadavg(load, 3);
  std::printf("load average %.1f\n\none process, 22 bytes: ns a message\n", load[0]);
  for (const How put : {How::kOneByOne, How::kMany}) {
    for (const How get : {How::kOneByOne, How::kMany}) {
      std::printf("  put %-4s get %-4s %7.1f\n", name_of(put), name_of(get),
                  in_one_process(put, get, budget));
    }
  }
  std::printf("\nbetween processes, 22 bytes: million messages a second (median of 3)\n");
  const struct {
    int producers, consumers;
    std::uint64_t each;
  } tables[] = {{1, 1, 4'000'000}, {1, 10, 200'000}, {10, 1, 200'000}, {3, 20, 200'000}, {20, 20, 50'000}};
  for (const auto& [producers, consumers, each] : tables) {
    for (const How put : {How::kOneByOne, How::kMany}) {
      for (const How get : {How::kOneByOne, How::kMany}) {
        std::vector<double> rates;
        for (int i = 0; i < 3; ++i) rates.push_back(between_processes(producers, consumers, put, get, each));
        std::printf("  %2d x %2d put %-4s get %-4s %8.2f\n", producers, consumers, name_of(put), name_of(get),
                    quantile(rates, 0.5));
        std::fflush(stdout);
      }
    }
  }
  std::printf("\n%12s %12s %12s %12s   GB/s\n", "bytes", "get_many", "take", "two memcpys");
  for (std::size_t bytes = 4096; bytes <= std::size_t{16} << 20; bytes *= 16) {
    const Bandwidth row = payload(bytes, budget);
    std::printf("%12zu %12.2f %12.2f %12.2f\n", bytes, row.copied, row.in_place, row.memcpys);
  }
  const auto [p50, p99] = round_trip(budget);
  std::printf("\nround trip between two sleepers: p50 %.1f us, p99 %.1f us\n", p50, p99);
  return 0;
}

}  // namespace
}  // namespace gristmill

int main(int argc, char** argv) { return gristmill::run(argc > 1 ? std::atof(argv[1]) : 0.5); }
