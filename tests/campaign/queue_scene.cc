#include "tests/campaign/queue_scene.h"

#include <signal.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include "core/segment.h"
#include "tests/campaign/attached.h"
#include "tests/campaign/payload.h"
#include "tests/campaign/tormentor.h"

namespace gristmill::campaign {
namespace {

using namespace std::chrono_literals;
using Outcome = MessageQueue::Outcome;

constexpr std::uint64_t kMostTaken = 8;

}  // namespace

QueueScene::QueueScene(const Plan& plan, Result& result) : plan_(plan), result_(result), ledger_(result) {
  constexpr std::size_t kLongest[] = {64, 300, 3000, 12'000, 60'000};
  Random random(plan.seed ^ 0x51, plan.number);
  producers_ = random.between(1, 5);
  consumers_ = random.between(1, 4);
  longest_ = random.pick(kLongest);
  const std::uint64_t roll = random.below(10);
  pace_ = roll == 0 ? Pace::kSlowProducers : roll == 1 ? Pace::kSlowConsumers : Pace::kFull;
  MessageQueueOptions options;
  options.max_size_bytes = std::max<std::uint64_t>(longest_ + 4096, std::uint64_t{8192} << random.below(7));
  if (random.chance(0.2)) options.max_messages = random.between(4, 64);
  const std::uint64_t overflow = random.below(12);
  if (overflow == 0) options.overflow = Overflow::kDropOldest;
  if (overflow == 1) options.overflow = Overflow::kLatest;
  if (random.chance(0.2)) {
    pace_ = Pace::kCrowded;
    producers_ = random.between(3, 5);
    consumers_ = 1;
    longest_ = random.chance(0.5) ? 12'000 : 24'000;
    most_ = 2;
    options = {.max_size_bytes = longest_ + 4096};
  }
  queue_ = MessageQueue::create(segment_name(plan.run, "q" + std::to_string(plan.number)), options);
  room_ = room();
  gets_at_first_ = queue_->statistics().gets;
}

std::vector<Role> QueueScene::cast() const {
  return {{"producer", Role::Side::kPuts, producers_},
          {"consumer", Role::Side::kTakes, consumers_},
          {"supervisor", Role::Side::kNeither, 1}};
}

// A put waits for its turn for a while, and then holds it until the queue has emptied that far.
double QueueScene::least_life_us() const {
  return pace_ == Pace::kCrowded ? 150'000 : Scene::least_life_us();
}

bool QueueScene::favours(std::string_view point) const {
  return pace_ == Pace::kCrowded && point.find(".turn.") != point.npos;
}

std::size_t QueueScene::length_of(std::uint64_t tag) const {
  const std::uint64_t roll = mixed(tag ^ plan_.seed);
  if (pace_ == Pace::kCrowded) {
    return puts_much(Tag::life(tag)) ? longest_ - roll % 100 : kLeastPayload + roll % 200;
  }
  // Most are short, whatever the longest.
  const std::size_t most = roll % 4 == 0 ? longest_ : std::min<std::size_t>(longest_, 200);
  return kLeastPayload + (roll >> 8) % (most - kLeastPayload + 1);
}

bool QueueScene::reserved(std::uint64_t tag) const { return mixed(tag ^ ~plan_.seed) % 4 == 0; }

int QueueScene::play(std::size_t role, Player& player) {
  const Attached<MessageQueue> attached(*queue_, player.random.chance(0.5));
  if (role == kProducer) return produce(*attached, player);
  return role == kConsumer ? consume(*attached, player) : supervise(*attached, player);
}

MessageQueue::PutResult QueueScene::put(MessageQueue& queue, Player& player, std::uint64_t first,
                                        std::uint64_t count, Deadline deadline) {
  std::vector<std::vector<std::byte>> messages;
  std::vector<std::span<const std::byte>> spans;
  for (std::uint64_t i = 0; i < count; ++i) {
    messages.emplace_back(length_of(first + i));
    write_payload({first + i, nanoseconds_now()}, messages.back());
    spans.emplace_back(messages.back());
  }
  const bool counts = pace_ != Pace::kSlowConsumers;
  if (count > 1) {
    Stopwatch watch(player, 0, "put_many", deadline, counts);
    const auto result = queue.put_many(spans, deadline);
    watch.could_end_from(player.last_take());
    return result;
  }
  if (reserved(first)) {
    const std::size_t spare = player.random.below(100);
    Stopwatch watch(player, 0, "reserve", deadline, counts);
    auto space = queue.reserve(messages[0].size() + spare, deadline);
    watch.could_end_from(player.last_take());
    if (space.outcome == Outcome::kTooLarge) return queue.put(messages[0], deadline);
    if (space.outcome != Outcome::kOk) return {space.outcome, 0, 0};
    if (player.random.below(20) == 0) return {Outcome::kTimedOut, 0, 0};  // changes its mind
    std::memcpy(space.reservation.bytes().data(), messages[0].data(), messages[0].size());
    space.reservation.commit(messages[0].size());
    return {Outcome::kOk, 1, 0};
  }
  Stopwatch watch(player, 0, "put", deadline, counts);
  if (player.random.below(3) == 0) {
    const std::span<const std::byte> whole(messages[0]);
    const std::array parts = {whole.first(5), whole.subspan(5)};
    const auto result = queue.put_parts(parts, deadline);
    watch.could_end_from(player.last_take());
    return result;
  }
  const auto result = queue.put(messages[0], deadline);
  watch.could_end_from(player.last_take());
  return result;
}

int QueueScene::produce(MessageQueue& queue, Player& player) {
  std::uint64_t sequence = 0;
  while (!player.finishing()) {
    if (pace_ == Pace::kSlowProducers) player.pause(player.random.below(2000));
    const std::uint64_t count = player.random.below(3) == 0 ? player.random.between(2, most_) : 1;
    player.slot.about_to.store(sequence + count, std::memory_order_release);
    const MessageQueue::PutResult result =
        put(queue, player, Tag::of(player.life, sequence), count, player.some_deadline());
    sequence += static_cast<std::uint64_t>(result.put);
    player.slot.acknowledged.store(sequence, std::memory_order_release);
    if (result.outcome == Outcome::kClosed && player.finishing()) return 0;
    if (result.outcome != Outcome::kOk && result.outcome != Outcome::kTimedOut) {
      return player.fail(Finding::kBroken,
                         "put ended with outcome " + std::to_string(static_cast<int>(result.outcome)));
    }
    if (player.makes(Mistake::kCrash, 300)) ::raise(SIGSEGV);
  }
  return 0;
}

int QueueScene::consume(MessageQueue& queue, Player& player) {
  Slot& slot = player.slot;
  MessageBuffer buffer;
  std::vector<std::uint64_t> tags;
  while (true) {
    if (pace_ == Pace::kSlowConsumers) player.pause(player.random.below(2000));
    if (pace_ == Pace::kCrowded) player.pause(player.random.below(500));
    const std::uint64_t most = player.random.between(1, kMostTaken);
    const std::uint64_t most_bytes =
        player.random.chance(0.2) ? player.random.between(1, 20'000) : MessageQueue::kNoLimit;
    const bool in_place = player.random.below(3) == 0;
    const Deadline deadline = player.draining() ? Deadline::in(200ms) : player.some_deadline();
    player.await_log_room(kMostTaken + 1);
    MessageQueue::TakeResult taken;
    Outcome outcome = Outcome::kOk;
    slot.taking.store(slot.log_end.load() << 8 | most, std::memory_order_release);
    {
      const bool counts = pace_ != Pace::kSlowProducers;
      Stopwatch watch(player, 1, in_place ? "take" : "get_many", deadline, counts);
      if (in_place) {
        taken = queue.take(static_cast<std::int64_t>(most), most_bytes, deadline);
        outcome = taken.outcome;
      } else {
        outcome = queue.get_many(static_cast<std::int64_t>(most), most_bytes, buffer, deadline);
      }
      // Not before the first message was there; in vain, not at all.
      const std::size_t got = in_place ? taken.batch.size() : buffer.size();
      const auto oldest = got == 0 ? std::nullopt : read_payload(in_place ? taken.batch[0] : buffer[0]);
      watch.could_end_from(oldest ? oldest->put_at : nanoseconds_now());
      if (!in_place && got > 0) player.note_take();
    }
    const std::size_t count = in_place ? taken.batch.size() : buffer.size();
    tags.clear();
    for (std::size_t i = 0; i < count; ++i) {
      std::span<const std::byte> message = in_place ? taken.batch[i] : buffer[i];
      if (player.makes(Mistake::kFlip, 500)) message = message.first(message.size() - 1);
      const auto payload = read_payload(message);
      if (!payload || (player.mistake == Mistake::kNone && message.size() != length_of(payload->tag))) {
        return player.fail(Finding::kDamaged,
                           "a message of " + std::to_string(message.size()) + " bytes is not what was put");
      }
      if (!player.makes(Mistake::kDrop, 50)) tags.push_back(payload->tag);
      if (player.makes(Mistake::kDuplicate, 500) && tags.size() < kMostTaken) tags.push_back(payload->tag);
    }
    if (player.mistake == Mistake::kReorder) std::reverse(tags.begin(), tags.end());
    player.log(tags);
    slot.taking.store(0, std::memory_order_release);
    if (outcome == Outcome::kClosed) return 0;
    if (outcome == Outcome::kTimedOut && player.draining() && queue.size() == 0) return 0;
    if (outcome != Outcome::kOk && outcome != Outcome::kTimedOut) {
      return player.fail(Finding::kBroken,
                         "get ended with outcome " + std::to_string(static_cast<int>(outcome)));
    }
    // Held for a while: others go on meanwhile.
    if (in_place && count > 0 && player.random.below(16) == 0) player.pause(player.random.below(300));
    if (in_place && count > 0) {
      Stopwatch watch(player, 2, "release", Deadline::never());
      taken.batch.release();
      player.note_take();
    }
  }
}

int QueueScene::supervise(MessageQueue& queue, Player& player) {
  while (!player.finishing()) {
    {
      Stopwatch watch(player, 2, "recover", Deadline::never());
      queue.recover();
    }
    const std::int64_t size = queue.size();
    if (size < 0 || queue.bytes_used() > queue.capacity_bytes()) {
      return player.fail(Finding::kBroken, "a size of " + std::to_string(size) + " and " +
                                               std::to_string(queue.bytes_used()) + " bytes in use");
    }
    queue.holders();
    player.pause(player.random.between(500, 20'000));
  }
  queue.close();  // while producers may still be at it
  return 0;
}

void QueueScene::began(std::size_t slot, std::size_t role, std::uint64_t life) {
  if (cast_.size() <= slot) cast_.resize(slot + 1);
  cast_[slot] = {role, life};
  if (role == kProducer) ledger_.producer_began(life);
}

void QueueScene::logged(std::size_t slot, std::span<const std::uint64_t> words) {
  // Where one consumer follows the other, order holds across their lives.
  const std::uint64_t taker = consumers_ == 1 ? 0 : cast_[slot].life;
  for (const std::uint64_t tag : words) {
    // What a dead consumer had begun to copy outside the lock is given back late.
    const bool copied_outside = length_of(tag) > MessageQueue::kLargeMessage || reserved(tag);
    const bool may_be_late = !plan_.spare_takers && copied_outside;
    ledger_.see(tag, taker, static_cast<std::uint32_t>(cast_[slot].life), may_be_late);
  }
}

void QueueScene::ended(std::size_t slot, const Slot& record, bool) {
  if (cast_[slot].role == kProducer) {
    ledger_.producer_ended(cast_[slot].life, record.acknowledged.load(), record.about_to.load());
  }
  const std::uint64_t taking = record.taking.load();
  // Killed after it had taken, before it could note it: that died with it.
  if (cast_[slot].role == kConsumer && taking != 0 && taking >> 8 == record.log_end.load()) {
    at_stake_ += taking & 0xFF;
  }
}

std::string QueueScene::described() const {
  const MessageQueueStatistics statistics = queue_->statistics();
  std::string text = std::to_string(queue_->size()) + " messages, " + std::to_string(queue_->bytes_used()) +
                     " of " + std::to_string(queue_->capacity_bytes()) + " bytes in use, " +
                     std::to_string(statistics.skipped) + " skipped, " +
                     std::to_string(statistics.owner_deaths) + " died holding a lock";
  for (const MessageHolder& holder : queue_->holders()) {
    text += "; " + std::to_string(holder.pid) + " holds " + std::to_string(holder.reserved) + " reserved, " +
            std::to_string(holder.taken) + " taken";
  }
  return text;
}

std::int64_t QueueScene::room() {
  if (queue_->options().overflow != Overflow::kBlock) return 0;
  std::vector<std::byte> message(48);
  write_payload({}, message);
  std::int64_t count = 0;
  while (queue_->try_put(message).outcome == Outcome::kOk) ++count;
  MessageBuffer buffer;
  while (queue_->get_many(4096, MessageQueue::kNoLimit, buffer, Deadline::now()) == Outcome::kOk) {
  }
  return count;
}

void QueueScene::finish(Tormentor& tormentor, Result& result) {
  tormentor.calm();
  const bool all_die = plan_.everybody_dies && !plan_.spare_takers;
  if (all_die) tormentor.kill_everybody();
  tormentor.tell_to_finish();
  MessageQueue::ReserveResult leak;
  if (plan_.mistake == Mistake::kLeak) leak = queue_->reserve(64, Deadline::in(1s));
  if (all_die) {
    tormentor.tell_to_drain();
    tormentor.ensure_one(kConsumer);
  } else {
    if (!tormentor.await_end(kProducer, false, kConsumer)) return;
    tormentor.start_one(kSupervisor, "message.close.stored");
    if (!tormentor.await_end(kSupervisor)) return;
    queue_->close();
    tormentor.ensure_one(kConsumer);
  }
  if (!tormentor.await_end(kConsumer, true) || !tormentor.await_end(kSupervisor)) return;

  queue_->recover();
  const MessageQueueStatistics statistics = queue_->statistics();
  if (queue_->size() != 0 || queue_->bytes_used() != 0 || !queue_->holders().empty()) {
    result.find(Finding::kShrunk, 1,
                "all are gone, and " + std::to_string(queue_->size()) + " messages and " +
                    std::to_string(queue_->bytes_used()) + " bytes are in use");
  } else if (const std::int64_t now = all_die ? room() : room_; now != room_) {
    result.find(Finding::kShrunk, 1,
                "room for " + std::to_string(now) + " messages, at first for " + std::to_string(room_));
  }
  result.count(Measure::kOwnerDeaths, statistics.owner_deaths);
  result.count(Measure::kRecovered, statistics.skipped);
  const std::uint64_t dropped = statistics.dropped;
  result.count(Measure::kDropped, dropped);
  // What left the queue and was not noted is what died with its consumer.
  const std::uint64_t gone = statistics.gets - gets_at_first_;
  const std::uint64_t delivered = result.measures[static_cast<std::size_t>(Measure::kDelivered)];
  const std::uint64_t died = std::min(at_stake_, gone > delivered ? gone - delivered : 0);
  const bool blocks = queue_->options().overflow == Overflow::kBlock;
  ledger_.settle(died, dropped, at_stake_ == 0 && dropped == 0, blocks && consumers_ == 1);
}

}  // namespace gristmill::campaign
