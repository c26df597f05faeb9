#include "core/message_turn.h"

#include "core/process_identity.h"

namespace gristmill {

std::uint64_t MessageTurn::pack(std::int64_t until, std::uint64_t ticket) {
  const std::uint64_t pid = ProcessIdentity::self_packed() & kPidMask;
  return (static_cast<std::uint64_t>(until) << kTicketBits | ticket) << kPidBits | pid;
}

bool MessageTurn::is_anothers(std::uint64_t turn, std::int64_t now) const {
  if (has_ticket_ && ticket_of(turn) == ticket_) return false;
  if (holds(turn, now)) return true;
  // Lapsed. Should its holder renew it in this moment, the exchange fails, or it takes the turn again.
  turns_.turn.compare_exchange_strong(turn, 0, std::memory_order_relaxed);
  return false;
}

bool MessageTurn::is_anothers_now(std::uint64_t turn) const { return is_anothers(turn, now()); }

void MessageTurn::forget_dead() const {
  std::uint64_t turn = turns_.turn.load(std::memory_order_relaxed);
  if (turn == 0) return;
  if (!ProcessIdentity::is_gone(static_cast<std::int64_t>(turn & kPidMask))) return;
  // Fails when another has it by now.
  turns_.turn.compare_exchange_strong(turn, 0, std::memory_order_relaxed);
}

bool MessageTurn::wait(std::int64_t now) {
  if (since_ < 0) since_ = now;
  if (now - since_ < kPatience) return false;
  if (!has_ticket_) {
    ticket_ = turns_.tickets.fetch_add(1, std::memory_order_relaxed) & kTicketMask;
    has_ticket_ = true;
  }
  std::uint64_t turn = turns_.turn.load(std::memory_order_relaxed);
  const bool mine = turn != 0 && ticket_of(turn) == ticket_;
  if (mine && held_since_ >= 0 && now - held_since_ >= kLongest) {
    since_ = now + kRest - kPatience;
    return give_back();
  }
  // Tickets are few enough that "older" survives their wrapping round.
  const bool older = ((ticket_of(turn) - ticket_) & kTicketMask) < kTicketMask / 2;
  if (turn != 0 && !mine && !older && holds(turn, now)) return false;
  const std::uint64_t renewed = pack(now + kHold, ticket_);
  if (turns_.turn.compare_exchange_strong(turn, renewed, std::memory_order_relaxed)) {
    GRISTMILL_FAULT_POINT("message.turn.taken");
    if (!mine || held_since_ < 0) held_since_ = now;
  }
  return false;
}

bool MessageTurn::give_back() {
  held_since_ = -1;
  std::uint64_t turn = turns_.turn.load(std::memory_order_relaxed);
  while (turn != 0 && ticket_of(turn) == ticket_) {
    if (turns_.turn.compare_exchange_weak(turn, 0, std::memory_order_relaxed)) {
      GRISTMILL_FAULT_POINT("message.turn.given_back");
      return true;
    }
  }
  return false;
}

bool MessageTurn::done() {
  const bool had = has_ticket_ && give_back();
  has_ticket_ = false;
  since_ = -1;
  return had;
}

}  // namespace gristmill
