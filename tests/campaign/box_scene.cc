#include "tests/campaign/box_scene.h"

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
using Outcome = Box::PublishOutcome;

constexpr std::uint32_t kTextCapacity = 44;
constexpr std::uint64_t kSightWords = 1 + kBoxGroups;

constexpr std::uint64_t bit(BoxGroup group) { return std::uint64_t{1} << group; }
// What each kind of write covers; see write_one().
constexpr std::uint64_t kCovers[] = {bit(kArrayA) | bit(kArrayB),
                                     bit(kArrayA) | bit(kArrayB) | bit(kScalars),
                                     bit(kScalars),
                                     bit(kArrayA),
                                     bit(kText),
                                     bit(kScalars) | bit(kArrayB)};

// Nothing for 0: what a new box holds.
std::string text_of(std::uint64_t tag) {
  return tag == 0 ? "" : std::to_string(tag) + std::string(tag % 17, 'x');
}

}  // namespace

void BoxScene::Acknowledged::stamp(std::uint64_t newest, std::uint64_t now) {
  Stamp& stamp = stamps[newest % kStamps];
  stamp.version.store(0);
  stamp.at.store(now);
  stamp.version.store(newest);
}

std::uint64_t BoxScene::Acknowledged::first_above(std::uint64_t seen, std::uint64_t newest,
                                                  std::uint64_t unknown) const {
  for (std::uint64_t v = seen + 1; v <= newest && v - seen < kStamps; ++v) {
    const Stamp& stamp = stamps[v % kStamps];
    const std::uint64_t at = stamp.at.load();
    if (stamp.version.load() == v) return at;
  }
  return unknown;
}

BoxScene::BoxScene(const Plan& plan, Result& result) : plan_(plan), result_(result), audit_(result) {
  constexpr std::size_t kBytes[] = {64, 1000, 16'000, 130'000};
  Random random(plan.seed ^ 0xB0, plan.number);
  writers_ = random.between(1, 3);
  bytes_a_ = random.pick(kBytes) + random.below(9);
  bytes_b_ = random.between(kLeastPayload, 2000);
  slow_ = random.chance(0.4);
  box_ = Box::create(segment_name(plan.run, "b" + std::to_string(plan.number)),
                     {{"a", DType::kUInt8, {static_cast<std::int64_t>(bytes_a_)}},
                      {"b", DType::kUInt8, {static_cast<std::int64_t>(bytes_b_)}}},
                     {{"first", ScalarType::kInt64, 0},
                      {"second", ScalarType::kInt64, 0},
                      {"text", ScalarType::kText, kTextCapacity}});
}

std::vector<Role> BoxScene::cast() const {
  return {{"writer", Role::Side::kPuts, writers_},
          {"reader", Role::Side::kTakes, 2},
          {"pinner", Role::Side::kTakes, 2},
          {"watcher", Role::Side::kTakes, 2}};
}

int BoxScene::play(std::size_t role, Player& player) {
  if (role == kReader && player.random.below(3) == 0) {
    const auto box = Box::attach(box_->name(), Deadline::in(10s), Box::Access::kReadOnly);
    return read(*box, player);
  }
  const Attached<Box> attached(*box_, player.random.chance(0.5));
  if (role == kWriter) return write(*attached, player);
  if (role == kReader) return read(*attached, player);
  return role == kPinner ? hold(*attached, player) : watch(*attached, player);
}

std::vector<std::byte> BoxScene::array_of(std::uint64_t tag, std::size_t bytes) const {
  std::vector<std::byte> array(bytes);
  if (tag != 0) write_payload({tag, 0}, array);
  return array;
}

Box::PublishResult BoxScene::write_one(Box& box, Player& player, std::uint64_t kind, std::uint64_t tag,
                                       Deadline deadline) {
  std::vector<std::byte> a = array_of(tag, bytes_a_);
  const std::vector<std::byte> b = array_of(tag, bytes_b_);
  if (player.makes(Mistake::kFlip, 200)) a.back() ^= std::byte{1};
  const std::array<std::uint64_t, 2> both = {tag, ~tag};
  const Box::Words words{box.first_word(0), both};
  const std::array<const std::byte*, 2> arrays = {a.data(), b.data()};
  constexpr const char* kCalls[] = {"publish",      "update all", "update scalars",
                                    "update array", "write_text", "write"};
  Stopwatch watch(player, 2, kCalls[kind], deadline);
  switch (kind) {
    case 0:
      return box.publish(arrays, deadline);
    case 1:
      return box.update({&words, 1}, arrays, deadline);
    case 2:
      return box.update({&words, 1}, {}, deadline);
    case 3: {
      const std::array<const std::byte*, 2> only_a = {a.data(), nullptr};
      return box.update({}, only_a, deadline);
    }
    case 4:
      return box.write_text(2, text_of(tag), deadline);
    default: {
      Box::Write held = box.begin_write(deadline);
      if (held.outcome() != Outcome::kOk) return {held.outcome(), 0};
      const std::array<const std::byte*, 2> only_b = {nullptr, b.data()};
      if (player.random.below(4) == 0) return {Outcome::kNoFreeSlot, 0};  // changes its mind
      return held.commit({&words, 1}, only_b);
    }
  }
}

int BoxScene::write(Box& box, Player& player) {
  for (std::uint64_t sequence = 1; !player.finishing(); ++sequence) {
    if (slow_) player.pause(player.random.below(1500));
    const std::uint64_t kind = player.random.below(std::size(kCovers));
    const std::uint64_t tag = Tag::of(player.life, sequence);
    const std::uint64_t write = BoxWrite::pack(kCovers[kind], tag);
    player.await_log_room(4);
    player.slot.about_to.store(write, std::memory_order_release);
    Box::PublishResult result;
    if (player.makes(Mistake::kDrop, 200)) {
      result.version = box.version() + 1;
    } else {
      result = write_one(box, player, kind, tag, player.some_deadline());
    }
    if (result.outcome == Outcome::kBroken)
      return player.fail(Finding::kBroken, "a write ended with kBroken");
    if (result.outcome == Outcome::kOk) {
      const std::array<std::uint64_t, 2> entry = {result.version, write};
      player.log(entry);
      if (player.makes(Mistake::kDuplicate, 200)) player.log(entry);
      acknowledged_->version[player.index].store(result.version, std::memory_order_release);
      acknowledged_->stamp(result.version, nanoseconds_now());
    }
    player.slot.about_to.store(0, std::memory_order_release);
    if (player.makes(Mistake::kCrash, 300)) ::raise(SIGSEGV);
  }
  return 0;
}

std::uint64_t BoxScene::newest_acknowledged() const {
  std::uint64_t newest = 0;
  for (const auto& version : acknowledged_->version) {
    newest = std::max(newest, version.load(std::memory_order_acquire));
  }
  return newest;
}

bool BoxScene::inspect(const std::byte* a, const std::byte* b, std::span<const std::uint64_t> words,
                       BoxSight* sight, std::string* problem) const {
  sight->tags.fill(BoxSight::kNotRead);
  const auto version = " of version " + std::to_string(sight->version);
  for (const auto& [group, array, bytes] :
       {std::tuple(kArrayA, a, bytes_a_), std::tuple(kArrayB, b, bytes_b_)}) {
    if (array == nullptr) continue;
    const auto payload = read_payload({array, bytes});
    const bool zeros =
        !payload && std::all_of(array, array + bytes, [](std::byte x) { return x == std::byte{0}; });
    if (!payload && !zeros) {
      *problem = "array " + std::to_string(group) + version + " mixes several writes";
      return false;
    }
    sight->tags[group] = payload ? payload->tag : 0;
  }
  if (words.empty()) return true;
  const std::uint64_t tag = words[box_->first_word(0)];
  const std::uint64_t complement = words[box_->first_word(1)];
  if (complement != ~tag && (tag != 0 || complement != 0)) {
    *problem = "the numbers" + version + " do not belong together";
    return false;
  }
  sight->tags[kScalars] = tag;
  const std::uint64_t* const text_words = words.data() + box_->first_word(2);
  const auto length = static_cast<std::size_t>(std::min<std::uint64_t>(text_words[0], kTextCapacity));
  const std::string text(reinterpret_cast<const char*>(text_words + 1), length);
  const std::uint64_t text_tag = text.empty() ? 0 : std::strtoull(text.c_str(), nullptr, 10);
  if (text != text_of(text_tag)) {
    *problem = "the text" + version + " mixes several writes: " + text;
    return false;
  }
  sight->tags[kText] = text_tag;
  return true;
}

int BoxScene::read(Box& box, Player& player) {
  Copy copy{std::vector<std::byte>(bytes_a_), std::vector<std::byte>(bytes_b_),
            std::vector<std::uint64_t>(box.words())};
  const std::array<std::byte*, 2> out = {copy.a.data(), copy.b.data()};
  std::uint64_t last = 0;
  std::string problem;
  while (!player.finishing()) {
    const std::uint64_t kind = player.random.below(3);
    const std::uint64_t floor = newest_acknowledged();
    BoxSight sight;
    if (kind == 0) {
      Stopwatch watch(player, 2, "read_into", Deadline::never());
      sight.version = box.read_into(out, copy.words);
    } else if (kind == 1) {
      Stopwatch watch(player, 2, "read_words", Deadline::never());
      sight.version = box.read_words(0, copy.words);
    } else {
      Stopwatch watch(player, 2, "read_text", Deadline::never());
      const std::string text = box.read_text(2);
      if (text != text_of(std::strtoull(text.c_str(), nullptr, 10))) {
        return player.fail(Finding::kTorn, "the text mixes several writes: " + text);
      }
      continue;
    }
    const bool whole = kind == 0;
    if (!inspect(whole ? out[0] : nullptr, whole ? out[1] : nullptr, copy.words, &sight, &problem)) {
      return player.fail(Finding::kTorn, problem);
    }
    if (sight.version < floor) {
      return player.fail(Finding::kDisordered, "version " + std::to_string(sight.version) +
                                                   " was read after " + std::to_string(floor) +
                                                   " had been acknowledged");
    }
    if (!whole && sight.version == last) continue;
    last = sight.version;
    if (player.makes(Mistake::kReorder, 200) && sight.version > 1) --sight.version;
    player.await_log_room(kSightWords);
    std::array<std::uint64_t, kSightWords> entry = {sight.version};
    std::copy(sight.tags.begin(), sight.tags.end(), entry.begin() + 1);
    player.log(entry);
  }
  return 0;
}

// What is pinned is the same from the first look to the last.
int BoxScene::hold(Box& box, Player& player) {
  std::vector<std::uint64_t> words(box.words());
  std::string problem;
  while (!player.finishing()) {
    const std::uint64_t floor = newest_acknowledged();
    Box::Pin pin;
    {
      Stopwatch watch(player, 2, "pin", Deadline::never());
      pin = box.pin(words);
    }
    BoxSight sight;
    sight.version = pin.version();
    if (sight.version < floor)
      return player.fail(Finding::kDisordered, "a pin of an older version than acknowledged");
    if (!inspect(pin.field(0), pin.field(1), words, &sight, &problem))
      return player.fail(Finding::kTorn, problem);
    BoxSight again = sight;
    player.pause(player.random.below(10) == 0 ? player.random.below(3000) : player.random.below(50));
    if (!inspect(pin.field(0), pin.field(1), words, &again, &problem) || again.tags != sight.tags) {
      return player.fail(Finding::kTorn,
                         "while pinned, version " + std::to_string(sight.version) + " was overwritten");
    }
    player.await_log_room(kSightWords);
    std::array<std::uint64_t, kSightWords> entry = {sight.version};
    std::copy(sight.tags.begin(), sight.tags.end(), entry.begin() + 1);
    player.log(entry);
    Stopwatch watch(player, 2, "release", Deadline::never());
    pin.release();
  }
  return 0;
}

int BoxScene::watch(Box& box, Player& player) {
  std::uint64_t seen = box.version();
  std::vector<std::uint64_t> words(box.words());
  std::string problem;
  while (!player.finishing()) {
    const Deadline deadline =
        Deadline::in(std::chrono::milliseconds(player.random.below(4) == 0 ? 2000 : 50));
    std::optional<std::uint64_t> newer;
    {
      Stopwatch watch(player, 1, "watch", deadline);
      newer = box.watch(seen, deadline);
      // Not before there was a newer one. (In vain: not at all.)
      const std::uint64_t now = nanoseconds_now();
      watch.could_end_from(newer ? acknowledged_->first_above(seen, *newer, now) : now);
    }
    if (!newer) continue;
    if (*newer <= seen) return player.fail(Finding::kDisordered, "watch returned a version that was seen");
    seen = *newer;
    BoxSight sight;
    sight.version = box.read_words(0, words);
    if (sight.version < seen)
      return player.fail(Finding::kDisordered, "a read is older than what watch returned");
    if (!inspect(nullptr, nullptr, words, &sight, &problem)) return player.fail(Finding::kTorn, problem);
    player.await_log_room(kSightWords);
    std::array<std::uint64_t, kSightWords> entry = {sight.version};
    std::copy(sight.tags.begin(), sight.tags.end(), entry.begin() + 1);
    player.log(entry);
  }
  return 0;
}

void BoxScene::began(std::size_t slot, std::size_t role, std::uint64_t) {
  if (cast_.size() <= slot) cast_.resize(slot + 1);
  cast_[slot] = {role, {}, 0, 0};
}

void BoxScene::logged(std::size_t slot, std::span<const std::uint64_t> words) {
  Cast& one = cast_[slot];
  if (one.role == kWriter) {
    for (std::size_t i = 0; i + 1 < words.size(); i += 2) {
      audit_.wrote(words[i], words[i + 1]);
      one.last_write = words[i + 1];
    }
    return;
  }
  for (std::size_t i = 0; i + kSightWords <= words.size(); i += kSightWords) {
    BoxSight sight;
    sight.version = words[i];
    std::copy_n(words.begin() + static_cast<std::ptrdiff_t>(i) + 1, kBoxGroups, sight.tags.begin());
    if (sight.version < one.last_version) {
      result_.find(Finding::kDisordered, 1,
                   "a process saw version " + std::to_string(sight.version) + " after " +
                       std::to_string(one.last_version));
    }
    one.last_version = sight.version;
    audit_.saw(sight);
    result_.count(Measure::kDelivered, 1);
  }
}

void BoxScene::ended(std::size_t slot, const Slot& record, bool) {
  const std::uint64_t pending = record.about_to.load();
  if (cast_[slot].role == kWriter && pending != 0 && pending != cast_[slot].last_write) {
    audit_.may_have_written(pending);
  }
}

void BoxScene::finish(Tormentor& tormentor, Result& result) {
  tormentor.calm();
  if (plan_.everybody_dies) tormentor.kill_everybody();
  tormentor.tell_to_finish();
  for (const std::size_t role : {kWriter, kReader, kPinner, kWatcher}) {
    if (!tormentor.await_end(role)) return;
  }
  audit_.settle(box_->version());
  // All are gone: every slot and every lock must serve again, and every pin.
  const std::uint64_t before = box_->version();
  for (std::uint64_t i = 1; i <= 2 * Box::kSlots; ++i) {
    const std::vector<std::byte> a = array_of(i, bytes_a_);
    const std::vector<std::byte> b = array_of(i, bytes_b_);
    const std::array<const std::byte*, 2> arrays = {a.data(), b.data()};
    const Box::PublishResult published = box_->publish(arrays, Deadline::in(1s));
    if (published.outcome != Outcome::kOk || published.version != before + i) {
      result.find(Finding::kShrunk, 1,
                  "all are gone, and publish ended with outcome " +
                      std::to_string(static_cast<int>(published.outcome)));
      return;
    }
  }
  Box::Pin leak;
  if (plan_.mistake == Mistake::kLeak) leak = box_->pin();
  std::vector<Box::Pin> pins;
  for (int i = 0; i < Box::kMaxReaders; ++i) pins.push_back(box_->pin());
}

}  // namespace gristmill::campaign
