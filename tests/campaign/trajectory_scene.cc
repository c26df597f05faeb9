#include "tests/campaign/trajectory_scene.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "core/segment.h"
#include "tests/campaign/attached.h"
#include "tests/campaign/payload.h"
#include "tests/campaign/tormentor.h"

namespace gristmill::campaign {
namespace {

using namespace std::chrono_literals;
using Outcome = TrajectoryQueue::Outcome;

// The round's own process puts under this name.
constexpr std::uint64_t kOwnLife = (std::uint64_t{1} << 23) - 1;

std::byte odd_byte(std::uint64_t tag, std::size_t i) { return static_cast<std::byte>(mixed(tag) >> i % 57); }

}  // namespace

TrajectoryScene::TrajectoryScene(const Plan& plan, Result& result)
    : plan_(plan), result_(result), ledger_(result) {
  constexpr std::size_t kWords[] = {4, 61, 512, 2000};
  Random random(plan.seed ^ 0x72, plan.number);
  producers_ = random.between(1, 5);
  words_ = random.pick(kWords);
  odd_ = random.between(1, 60);
  capacity_ = static_cast<std::int64_t>(random.between(kMostTaken, 40));
  const FieldSpecs spec = {{"words", DType::kInt64, {static_cast<std::int64_t>(words_)}},
                           {"tag", DType::kInt64, {}},
                           {"odd", DType::kUInt8, {static_cast<std::int64_t>(odd_)}}};
  queue_ =
      TrajectoryQueue::create(segment_name(plan.run, "t" + std::to_string(plan.number)), spec, capacity_);
}

std::vector<Role> TrajectoryScene::cast() const {
  return {{"producer", Role::Side::kPuts, producers_},
          {"consumer", Role::Side::kTakes, 1},
          {"supervisor", Role::Side::kNeither, 1}};
}

int TrajectoryScene::play(std::size_t role, Player& player) {
  const Attached<TrajectoryQueue> attached(*queue_, player.random.chance(0.5));
  if (role == kProducer) return produce(*attached, player);
  return role == kConsumer ? consume(*attached, player) : supervise(*attached, player);
}

TrajectoryQueue::PutResult TrajectoryScene::put(TrajectoryQueue& queue, std::uint64_t first,
                                                std::int64_t count, Deadline deadline) {
  const auto n = static_cast<std::size_t>(count);
  std::vector<std::byte> words(n * words_ * 8);
  std::vector<std::uint64_t> tags(n);
  std::vector<std::byte> odd(n * odd_);
  for (std::size_t i = 0; i < n; ++i) {
    tags[i] = first + i;
    write_payload({tags[i], nanoseconds_now()}, std::span(words).subspan(i * words_ * 8, words_ * 8));
    for (std::size_t b = 0; b < odd_; ++b) odd[i * odd_ + b] = odd_byte(tags[i], b);
  }
  const std::array<const std::byte*, 3> fields = {
      words.data(), reinterpret_cast<const std::byte*>(tags.data()), odd.data()};
  return queue.put_many(fields, count, deadline);
}

std::optional<Payload> TrajectoryScene::payload_of(const TrajectoryQueue::Batch& batch,
                                                   std::int64_t index) const {
  const auto i = static_cast<std::size_t>(index);
  std::uint64_t tag = 0;
  std::memcpy(&tag, batch.field(1) + i * 8, 8);
  const auto payload = read_payload({batch.field(0) + i * words_ * 8, words_ * 8});
  if (!payload || payload->tag != tag) return std::nullopt;
  for (std::size_t b = 0; b < odd_; ++b) {
    if (batch.field(2)[i * odd_ + b] != odd_byte(tag, b)) return std::nullopt;
  }
  return payload;
}

int TrajectoryScene::produce(TrajectoryQueue& queue, Player& player) {
  std::uint64_t sequence = 0;
  while (!player.finishing()) {
    const std::int64_t count = static_cast<std::int64_t>(player.random.between(1, kMostPut));
    player.slot.about_to.store(sequence + static_cast<std::uint64_t>(count), std::memory_order_release);
    const Deadline deadline = player.some_deadline();
    TrajectoryQueue::PutResult result;
    {
      Stopwatch watch(player, 0, "put_many", deadline);
      result = put(queue, Tag::of(player.life, sequence), count, deadline);
      watch.could_end_from(player.last_take());
    }
    sequence += static_cast<std::uint64_t>(result.put);
    player.slot.acknowledged.store(sequence, std::memory_order_release);
    if (result.outcome == Outcome::kClosed && player.finishing()) return 0;
    if (result.outcome != Outcome::kOk && result.outcome != Outcome::kTimedOut) {
      return player.fail(Finding::kBroken,
                         "put_many ended with outcome " + std::to_string(static_cast<int>(result.outcome)));
    }
    if (player.makes(Mistake::kCrash, 300)) ::raise(SIGSEGV);
  }
  return 0;
}

// Notes what it took before it releases it: hence the next one gets again at most what was not released.
int TrajectoryScene::consume(TrajectoryQueue& queue, Player& player) {
  std::vector<TrajectoryQueue::Batch> held;
  std::uint64_t noted = 0;
  while (true) {
    const std::int64_t n = static_cast<std::int64_t>(player.random.between(1, kMostTaken));
    const Deadline deadline = player.some_deadline();
    player.await_log_room(kMostTaken + 1);
    TrajectoryQueue::GetResult got;
    {
      Stopwatch watch(player, 1, "get_many", deadline);
      got = queue.get_many(n, deadline);
      // Not before the last of them was there; in vain, not at all.
      std::uint64_t there = got.batch.size() == 0 ? nanoseconds_now() : 0;
      for (std::int64_t i = 0; i < got.batch.size(); ++i) {
        const auto payload = payload_of(got.batch, i);
        if (payload) there = std::max(there, payload->put_at);
      }
      watch.could_end_from(there);
    }
    if (got.outcome == Outcome::kClosed) return 0;
    if (got.outcome != Outcome::kOk && got.outcome != Outcome::kTimedOut) {
      return player.fail(Finding::kBroken,
                         "get_many ended with outcome " + std::to_string(static_cast<int>(got.outcome)));
    }
    std::vector<std::uint64_t> tags;
    for (std::int64_t i = 0; i < got.batch.size(); ++i) {
      if (player.makes(Mistake::kFlip, 500)) got.batch.field(0)[24] ^= std::byte{4};
      const auto payload = payload_of(got.batch, i);
      if (!payload) {
        return player.fail(Finding::kDamaged, "a trajectory is not what was put");
      }
      if (!player.makes(Mistake::kDrop, 50)) tags.push_back(payload->tag);
      if (player.makes(Mistake::kDuplicate, 500) && tags.size() < kMostTaken) tags.push_back(payload->tag);
    }
    if (player.mistake == Mistake::kReorder) std::reverse(tags.begin(), tags.end());
    player.log(tags);
    noted += tags.size();
    if (got.outcome == Outcome::kOk) held.push_back(std::move(got.batch));
    // Sometimes two are held, and given back the wrong way round. Never so that the queue is stuck.
    if (held.size() == 1 && capacity_ >= 4 * kMostTaken && player.random.below(4) == 0) continue;
    if (player.random.below(16) == 0) player.pause(player.random.below(300));
    Stopwatch watch(player, 2, "release", Deadline::never());
    while (!held.empty()) held.pop_back();
    player.note_take();
    player.slot.released.store(noted, std::memory_order_release);
  }
}

int TrajectoryScene::supervise(TrajectoryQueue& queue, Player& player) {
  while (!player.finishing()) {
    {
      Stopwatch watch(player, 2, "recover", Deadline::never());
      queue.recover();
    }
    const std::int64_t size = queue.size();
    if (size < 0 || size > capacity_)
      return player.fail(Finding::kBroken, "a size of " + std::to_string(size));
    player.pause(player.random.between(500, 20'000));
  }
  queue.close();  // while producers may still be at it
  return 0;
}

void TrajectoryScene::began(std::size_t slot, std::size_t role, std::uint64_t life) {
  if (cast_.size() <= slot) cast_.resize(slot + 1);
  cast_[slot] = {role, life, {}};
  if (role == kProducer) ledger_.producer_began(life);
}

void TrajectoryScene::logged(std::size_t slot, std::span<const std::uint64_t> words) {
  auto& noted = cast_[slot].noted;
  for (const std::uint64_t tag : words) {
    // A dead producer's place is filled by a later put: then order is lost.
    ledger_.see(tag, 0, static_cast<std::uint32_t>(cast_[slot].life), !plan_.spare_putters);
    noted.push_back(tag);
  }
  constexpr std::size_t kKept = 4 * kMostTaken;
  if (noted.size() > kKept) noted.erase(noted.begin(), noted.end() - kKept);
}

void TrajectoryScene::ended(std::size_t slot, const Slot& record, bool) {
  const Cast& one = cast_[slot];
  if (one.role == kProducer) {
    ledger_.producer_ended(one.life, record.acknowledged.load(), record.about_to.load());
  } else if (one.role == kConsumer) {
    const std::uint64_t kept = record.log_end.load() - record.released.load();
    for (std::size_t i = 0; i < kept && i < one.noted.size(); ++i) {
      ledger_.expect_again(one.noted[one.noted.size() - 1 - i]);
    }
  }
}

void TrajectoryScene::fill_up(Result& result) {
  ledger_.producer_began(kOwnLife);
  std::uint64_t sequence = 0;
  queue_->recover();
  while (sequence <= static_cast<std::uint64_t>(capacity_) &&
         put(*queue_, Tag::of(kOwnLife, sequence), 1, Deadline::in(20ms)).outcome == Outcome::kOk) {
    ++sequence;
  }
  ledger_.producer_ended(kOwnLife, sequence, sequence);
  const TrajectoryQueueStatistics statistics = queue_->statistics();
  if (queue_->size() != capacity_ || statistics.abandoned != statistics.refilled) {
    result.find(Finding::kShrunk, 1,
                "filled up, it holds " + std::to_string(queue_->size()) + " of " + std::to_string(capacity_) +
                    ", and of " + std::to_string(statistics.abandoned) + " places whose claimants died " +
                    std::to_string(statistics.refilled) + " were used again");
  }
}

void TrajectoryScene::finish(Tormentor& tormentor, Result& result) {
  tormentor.calm();
  const bool all_die = plan_.everybody_dies && !plan_.spare_takers && !plan_.spare_putters;
  if (all_die) {
    tormentor.kill_everybody();
    if (tormentor.hopeless()) return;
    // Otherwise the places of the dead are still there when the queue is closed.
    if (plan_.number % 2 == 0) fill_up(result);
  }
  tormentor.tell_to_finish();
  if (!all_die && !tormentor.await_end(kProducer, false, kConsumer)) return;
  tormentor.start_one(kSupervisor, "close.stored");
  if (!tormentor.await_end(kSupervisor)) return;
  queue_->close();
  tormentor.start_one(kConsumer, "get.skipped");
  tormentor.ensure_one(kConsumer);
  if (!tormentor.await_end(kConsumer, true) || !tormentor.await_end(kSupervisor)) return;
  queue_->recover();
  const TrajectoryQueueStatistics statistics = queue_->statistics();
  if (queue_->size() != 0) {
    result.find(Finding::kShrunk, 1,
                "all are gone, and " + std::to_string(queue_->size()) + " places are in use");
  }
  result.count(Measure::kOwnerDeaths, statistics.owner_deaths);
  result.count(Measure::kRecovered, statistics.abandoned);
  ledger_.settle(0, 0, plan_.spare_putters, true);
}

}  // namespace gristmill::campaign
