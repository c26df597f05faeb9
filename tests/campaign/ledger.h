#pragma once

// The account of what was put and what was seen of it. Private to the round's process.

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/campaign/result.h"

namespace gristmill::campaign {

class Ledger {
 public:
  explicit Ledger(Result& result) : result_(result) {}

  void producer_began(std::uint64_t life) { accounts_[life]; }
  // acknowledged: sequence numbers below it were put; about_to: those below it may have been.
  void producer_ended(std::uint64_t life, std::uint64_t acknowledged, std::uint64_t about_to);
  // `taker` saw it. Each taker sees the messages of a producer in order, except where may_be_late.
  // A repetition is kDoubled unless it was expected (expect_again).
  // life: of the process that saw it, which is the taker unless takers follow each other as one.
  void see(std::uint64_t tag, std::uint64_t taker, std::uint32_t life, bool may_be_late);
  // Was seen, and may be seen once more before anything new.
  void expect_again(std::uint64_t tag) { again_[tag] = true; }

  // After the last see(). Of the acknowledged ones, `died` may be missing because their consumers were
  // killed, and `dropped` because they gave way. strict_tail: of a dead producer's last put, what was seen
  // must be its front. one_taker: there was one at a time, so that what died with one lies between what that
  // one and what its successor saw.
  void settle(std::uint64_t died, std::uint64_t dropped, bool strict_tail, bool one_taker);

 private:
  struct Account {
    std::uint64_t acknowledged = 0;
    std::uint64_t about_to = 0;
    std::vector<std::uint32_t> seen;  // by sequence: the life that saw it, 0: nobody
    std::vector<std::pair<std::uint64_t, std::uint64_t>> last;  // by taker: sequence + 1
  };

  Result& result_;
  std::unordered_map<std::uint64_t, Account> accounts_;
  std::unordered_map<std::uint64_t, bool> again_;
};

}  // namespace gristmill::campaign
