#include "campaign/player.h"

#include <unistd.h>

#include <algorithm>
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

Deadline Player::some_deadline() {
  const std::uint64_t roll = random.below(100);
  if (roll < 5) return Deadline::now();
  if (roll < 20) return Deadline::in(std::chrono::microseconds(random.between(200, 20'000)));
  return Deadline::in(std::chrono::seconds(60));
}

Stopwatch::Stopwatch(Player& player, int clock, const char* name, Deadline deadline, bool counts)
    : player_(player), clock_(player.clock(clock)), deadline_(deadline), counts_(counts) {
  Slot& slot = player.slot;
  since_ = nanoseconds_now();
  excused_ = clock_.at(since_);
  own_stops_ = slot.own_stops.at(since_);
  slot.op_name.store(counts ? name : nullptr, std::memory_order_relaxed);
  slot.op_clock.store(clock, std::memory_order_relaxed);
  slot.op_excused.store(excused_, std::memory_order_relaxed);
  slot.op_since.store(since_, std::memory_order_release);
  if (player.makes(Mistake::kStall, 2000)) ::usleep(300'000);
  if (player.makes(Mistake::kHang, 2000)) {
    while (true) ::pause();
  }
}

Stopwatch::~Stopwatch() {
  Slot& slot = player_.slot;
  const std::uint64_t now = nanoseconds_now();
  slot.op_since.store(0, std::memory_order_release);
  if (counts_) slot.stalls.add(less(now - since_, less(clock_.at(now), excused_)));
  if (deadline_.is_now() || deadline_.is_never()) return;
  const auto due = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(deadline_.at().time_since_epoch()).count());
  if (now > due) slot.late.add(less(now - due, less(slot.own_stops.at(now), own_stops_)));
}

}  // namespace gristmill::campaign
