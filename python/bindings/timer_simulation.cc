// What `gristmill bench timers` runs in C++: the loops that it also runs in Python.

#include <pybind11/pybind11.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <vector>

#include "core/timer_queue.h"
#include "python/bindings/bindings.h"

namespace gristmill::python {
namespace {

using Clock = TimerQueue::Clock;
using TimePoint = TimerQueue::TimePoint;

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

TimePoint::duration duration_of(double seconds) {
  return std::chrono::duration_cast<TimePoint::duration>(std::chrono::duration<double>(seconds));
}

// `connections`, each with a timer of `timeout` seconds, restarted in turn at `hertz` for `seconds` of
// simulated time; after each restart what is due is taken.
py::dict simulate(std::size_t connections, double hertz, double seconds, double timeout) {
  const TimePoint::duration patience = duration_of(timeout);
  const auto restarts = static_cast<std::int64_t>(seconds * hertz);
  const TimePoint::duration step = duration_of(1 / hertz);
  const double begin = cpu_seconds();
  TimerQueue timers;
  std::vector<TimerQueue::Id> ids(connections);
  TimePoint now{};
  for (auto& id : ids) id = timers.schedule(now + patience);
  std::size_t longest = 0, expired = 0, next = 0;
  for (std::int64_t i = 0; i < restarts; ++i) {
    now += step;
    if (!timers.restart(ids[next], now + patience)) ids[next] = timers.schedule(now + patience);
    expired += timers.expire(now).size();
    longest = std::max(longest, timers.size());
    if (++next == connections) next = 0;
  }
  const double end = cpu_seconds();
  py::dict made;
  made["cpu_s"] = end - begin;
  made["longest"] = longest;
  made["expired"] = expired;
  made["restarts"] = restarts;
  return made;
}

// Nanoseconds for each of `restarts` restarts of `count` timers to a later time.
double restart_cost(std::size_t count, std::size_t restarts, bool at_random) {
  TimerQueue timers;
  std::vector<TimerQueue::Id> ids(count);
  TimePoint now{};
  for (auto& id : ids) id = timers.schedule(now);
  std::mt19937_64 random(count);
  std::vector<std::uint32_t> order(restarts);
  for (std::size_t i = 0; i < restarts; ++i) {
    order[i] = static_cast<std::uint32_t>(at_random ? random() % count : i % count);
  }
  std::size_t done = 0;
  const auto begin = Clock::now();
  for (const std::uint32_t which : order) {
    now += std::chrono::microseconds(1);
    done += timers.restart(ids[which], now);
  }
  const std::chrono::duration<double, std::nano> took = Clock::now() - begin;
  if (done != restarts) throw std::logic_error("a restart was refused");
  return took.count() / static_cast<double>(restarts);
}

}  // namespace

void bind_timer_simulation(py::module_& module) {
  module.def("_simulate_timers", &simulate, py::arg("connections"), py::arg("hertz"), py::arg("seconds"),
             py::arg("timeout"), "Of gristmill bench timers.");
  module.def("_timer_restart_ns", &restart_cost, py::arg("timers"), py::arg("restarts"), py::arg("at_random"),
             "Of gristmill bench timers.");
}

}  // namespace gristmill::python
