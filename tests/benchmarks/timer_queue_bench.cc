// What a restart costs, from 10^3 to 10^6 timers: in turn and at random, later and anywhere; and what the
// other calls cost.

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <random>
#include <vector>

#include "core/timer_queue.h"

namespace {

using namespace gristmill;
using namespace std::chrono_literals;
using TimePoint = TimerQueue::TimePoint;

constexpr auto kTimeout = 600s;

struct Timers {
  explicit Timers(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) ids.push_back(queue.schedule(now + kTimeout + i * 1us));
  }
  TimerQueue queue;
  std::vector<TimerQueue::Id> ids;
  TimePoint now{};
};

template <class Call>
double nanoseconds_each(std::size_t calls, Call&& call) {
  const auto begin = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < calls; ++i) call(i);
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
  return took.count() / static_cast<double>(calls);
}

void measure(std::size_t count) {
  constexpr std::size_t kCalls = 4'000'000;
  std::mt19937_64 random(count);
  std::vector<std::uint32_t> order(kCalls);
  for (auto& index : order) index = static_cast<std::uint32_t>(random() % count);
  std::vector<TimePoint> anywhere(kCalls);
  for (auto& time : anywhere) time = TimePoint(std::chrono::nanoseconds(random() % 600'000'000'000));
  bool all = true;

  Timers a(count);
  const double in_turn = nanoseconds_each(kCalls, [&](std::size_t i) {
    a.now += 1us;
    all &= a.queue.restart(a.ids[i % count], a.now + kTimeout);
    all &= a.queue.expire(a.now).empty();
  });
  Timers b(count);
  const double at_random = nanoseconds_each(kCalls, [&](std::size_t i) {
    b.now += 1us;
    all &= b.queue.restart(b.ids[order[i]], b.now + kTimeout);
  });
  Timers c(count);
  const double to_anywhere =
      nanoseconds_each(kCalls, [&](std::size_t i) { all &= c.queue.restart(c.ids[order[i]], anywhere[i]); });
  Timers d(count);
  const double with_next = nanoseconds_each(kCalls, [&](std::size_t i) {
    d.now += 1us;
    all &= d.queue.restart(d.ids[i % count], d.now + kTimeout);
    all &= d.queue.next_deadline().has_value();
  });
  const double replace = nanoseconds_each(kCalls, [&](std::size_t i) {
    auto& id = d.ids[order[i]];
    all &= d.queue.cancel(id);
    id = d.queue.schedule(anywhere[i]);
  });
  TimerQueue filled;
  const double schedule = nanoseconds_each(count, [&](std::size_t i) { filled.schedule(anywhere[i]); });
  const auto begin = std::chrono::steady_clock::now();
  all &= filled.expire(TimerQueue::kNever).size() == count;
  const std::chrono::duration<double, std::nano> expire = std::chrono::steady_clock::now() - begin;
  std::printf("%8zu  %9.1f  %9.1f  %9.1f  %9.1f  %9.1f  %9.1f  %9.1f  %s\n", count, in_turn, at_random,
              to_anywhere, with_next, replace, schedule, expire.count() / static_cast<double>(count),
              all ? "" : "WRONG");
}

}  // namespace

int main() {
  std::puts(
      "  timers  restart,   restart,   restart,   restart +  cancel +   schedule,  expire,\n"
      "          in turn    random,    random,    next       schedule   anywhere   all at\n"
      "          + expire   later      anywhere   deadline   anywhere              once       (ns)");
  for (const std::size_t count : {1'000, 10'000, 100'000, 1'000'000}) measure(count);
}
