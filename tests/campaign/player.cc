#include "tests/campaign/player.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace gristmill::campaign {
namespace {

std::uint64_t less(std::uint64_t a, std::uint64_t b) { return a > b ? a - b : 0; }

}  // namespace

void Player::await_log_room(std::size_t words) const {
  const std::uint64_t end = slot.log_end.load(std::memory_order_relaxed);
  while (end + words - slot.drained.load(std::memory_order_acquire) > Slot::kLogWords) pause(100);
}

void Player::log(std::span<const std::uint64_t> words) const {
  const std::uint64_t end = slot.log_end.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < words.size(); ++i) {
    slot.log[(end + i) % Slot::kLogWords].store(words[i], std::memory_order_relaxed);
  }
  slot.log_end.store(end + words.size(), std::memory_order_release);
}

int Player::fail(Finding what, const std::string& text) const {
  const std::size_t length = std::min(text.size(), Slot::kFailureText - 1);
  std::memcpy(slot.failure, text.data(), length);
  slot.failure[length] = '\0';
  slot.failed.store(static_cast<int>(what) + 1, std::memory_order_release);
  return 1;
}

void Player::pause(std::uint64_t microseconds) const { ::usleep(static_cast<useconds_t>(microseconds)); }

std::uint64_t Player::waited_for_core_now() {
  if (schedstat_ == -1) schedstat_ = ::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
  char text[100];
  const ssize_t length = schedstat_ < 0 ? 0 : ::pread(schedstat_, text, sizeof text - 1, 0);
  if (length <= 0) return 0;
  text[length] = '\0';
  unsigned long long ran = 0;
  unsigned long long waited = 0;
  return std::sscanf(text, "%llu %llu", &ran, &waited) == 2 ? waited : 0;
}

std::uint64_t Player::waited_for_core(std::uint64_t now) {
  constexpr std::uint64_t kFresh = 1'000'000;
  if (looked_at_ == 0 || now - looked_at_ > kFresh) {
    looked_at_ = now;
    waited_ = waited_for_core_now();
  }
  return waited_;
}

std::uint64_t Player::last_take() const {
  std::uint64_t last = 0;
  for (const auto& at : state_.took_at) last = std::max(last, at.load(std::memory_order_acquire));
  return last;
}

Deadline Player::some_deadline() {
  const std::uint64_t roll = random.below(100);
  if (roll < 5) return Deadline::now();
  if (roll < 20) return Deadline::in(std::chrono::microseconds(random.between(200, 20'000)));
  return Deadline::in(std::chrono::seconds(60));
}

Stopwatch::Stopwatch(Player& player, int clock, const char* name, Deadline deadline, bool counts)
    : player_(player), clock_(player.clock(clock)), deadline_(deadline), counts_(counts), name_(name) {
  Slot& slot = player.slot;
  waited_ = player.waited_for_core(nanoseconds_now());
  begin_ = since_ = nanoseconds_now();
  excused_ = clock_.at(since_);
  own_stops_ = slot.own_stops.at(since_);
  slot.op_name.store(counts ? name : nullptr, std::memory_order_relaxed);
  slot.op_clock.store(clock, std::memory_order_relaxed);
  slot.op_excused.store(excused_, std::memory_order_relaxed);
  slot.op_since.store(since_, std::memory_order_release);
  if (player.makes(Mistake::kStall, 2000)) ::usleep(300'000);
  if (player.makes(Mistake::kHang, 100)) {
    while (true) ::pause();
  }
}

Stopwatch::~Stopwatch() {
  constexpr std::uint64_t kWorthALook = 2'000'000;
  Slot& slot = player_.slot;
  const std::uint64_t now = nanoseconds_now();
  slot.op_since.store(0, std::memory_order_release);
  // A deadline that had passed before the call began (its process was stopped in between) is none of its
  // doing.
  std::uint64_t late = 0;
  if (!deadline_.is_now() && !deadline_.is_never()) {
    const auto due = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(deadline_.at().time_since_epoch()).count());
    late = less(now, std::max(begin_, due));
  }
  const std::uint64_t took = now - since_;
  const bool worth_a_look = took >= kWorthALook || late >= kWorthALook;
  const std::uint64_t waited = worth_a_look ? less(player_.waited_for_core_now(), waited_) : 0;
  if (counts_) {
    const std::uint64_t stall = less(took, less(clock_.at(now), excused_));
    const std::uint64_t net = less(stall, waited);
    slot.stalls.add(stall);
    if (net > slot.net_stalls.max()) slot.worst_name.store(name_, std::memory_order_relaxed);
    slot.net_stalls.add(net);
  }
  if (late > 0) slot.late.add(less(less(late, less(slot.own_stops.at(now), own_stops_)), waited));
}

}  // namespace gristmill::campaign
