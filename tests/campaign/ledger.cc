#include "tests/campaign/ledger.h"

#include <algorithm>

#include "tests/campaign/payload.h"

namespace gristmill::campaign {
namespace {

std::string described(std::uint64_t life, std::uint64_t sequence) {
  return "number " + std::to_string(sequence) + " of producer " + std::to_string(life);
}

}  // namespace

void Ledger::producer_ended(std::uint64_t life, std::uint64_t acknowledged, std::uint64_t about_to) {
  Account& account = accounts_[life];
  account.acknowledged = acknowledged;
  account.about_to = std::max(about_to, acknowledged);
  result_.count(Measure::kAcknowledged, acknowledged);
}

void Ledger::see(std::uint64_t tag, std::uint64_t taker, std::uint32_t life, bool may_be_late) {
  result_.count(Measure::kDelivered, 1);
  const std::uint64_t sequence = Tag::sequence(tag);
  const auto found = accounts_.find(Tag::life(tag));
  if (found == accounts_.end()) {
    result_.find(Finding::kDamaged, 1, described(Tag::life(tag), sequence) + ", whom nobody knows");
    return;
  }
  Account& account = found->second;
  if (account.seen.size() <= sequence) account.seen.resize(sequence + 1 + sequence / 2);
  if (account.seen[sequence] != 0) {
    if (again_.erase(tag) == 1) {
      result_.count(Measure::kRepeated, 1);
    } else {
      result_.find(Finding::kDoubled, 1, described(found->first, sequence));
    }
    return;
  }
  account.seen[sequence] = life;
  again_.clear();  // what is given again comes first
  auto last =
      std::find_if(account.last.begin(), account.last.end(), [&](const auto& l) { return l.first == taker; });
  if (last == account.last.end()) last = account.last.insert(account.last.end(), {taker, 0});
  if (sequence + 1 > last->second) {
    last->second = sequence + 1;
  } else if (!may_be_late) {
    result_.find(Finding::kDisordered, 1,
                 described(found->first, sequence) + " after number " + std::to_string(last->second - 1));
  }
}

void Ledger::settle(std::uint64_t died, std::uint64_t dropped, bool strict_tail, bool one_taker) {
  std::uint64_t missing = 0;
  std::string first;
  for (const auto& [life, account] : accounts_) {
    const auto seen = [&account = account](std::uint64_t i) {
      return i < account.seen.size() && account.seen[i] != 0;
    };
    std::uint32_t before = 0;  // the life that saw the last one that was seen
    std::uint64_t gap = 0;     // that nobody saw since
    for (std::uint64_t i = 0; i < account.acknowledged; ++i) {
      if (!seen(i)) {
        if (missing++ == 0) first = described(life, i);
        ++gap;
        continue;
      }
      if (one_taker && gap > 0 && account.seen[i] == before) {
        missing -= gap;
        result_.find(Finding::kLost, gap, described(life, i - 1) + ", while its consumer lived on");
      }
      before = account.seen[i];
      gap = 0;
    }
    std::uint64_t tail = 0;
    for (std::uint64_t i = account.acknowledged; i < account.seen.size(); ++i) {
      if (!seen(i)) continue;
      ++tail;
      if (i >= account.about_to) {
        result_.find(Finding::kDamaged, 1, described(life, i) + ", which was never put");
      } else if (strict_tail && i > account.acknowledged && !seen(i - 1)) {
        result_.find(Finding::kLost, 1,
                     described(life, i - 1) + ", although a later one of the same put is there");
      }
    }
    result_.count(Measure::kUnacknowledged, tail);
  }
  const std::uint64_t gone = missing - std::min(missing, dropped);
  result_.count(Measure::kDiedWithConsumer, std::min(gone, died));
  if (gone > died) result_.find(Finding::kLost, gone - died, "at first " + first);
}

}  // namespace gristmill::campaign
