#include "tests/campaign/segment_scene.h"

#include <array>
#include <chrono>
#include <string>

#include "core/box.h"
#include "core/message_queue.h"
#include "core/segment.h"
#include "tests/campaign/payload.h"
#include "tests/campaign/tormentor.h"

namespace gristmill::campaign {
namespace {

using namespace std::chrono_literals;
using Reason = SegmentError::Reason;

}  // namespace

// Of this round, whoever made it.
bool SegmentScene::is_ours(const SegmentInfo& segment) const {
  return segment.name.find("." + plan_.run + ".c") != std::string::npos;
}

std::vector<Role> SegmentScene::cast() const {
  return {{"creator", Role::Side::kPuts, 3},
          {"attacher", Role::Side::kTakes, 2},
          {"sweeper", Role::Side::kNeither, 1}};
}

int SegmentScene::play(std::size_t role, Player& player) {
  if (role == kCreator) return create(player);
  return role == kAttacher ? attach(player) : sweep(player);
}

int SegmentScene::create(Player& player) {
  for (std::uint64_t n = 1; !player.finishing(); ++n) {
    const std::string name =
        segment_name(plan_.run, "c" + std::to_string(plan_.number) + "-" + std::to_string(n));
    if (n % 2 == 0) {
      std::unique_ptr<Box> box;
      {
        Stopwatch watch(player, 2, "create a box", Deadline::never());
        box = Box::create(name, {{"a", DType::kUInt8, {4000}}});
      }
      player.pause(player.random.below(400));
    } else {
      std::unique_ptr<MessageQueue> queue;
      {
        Stopwatch watch(player, 2, "create a queue", Deadline::never());
        queue = MessageQueue::create(name, {.max_size_bytes = 16'384});
      }
      std::vector<std::byte> message(100);
      write_payload({n, 0}, message);
      queue->try_put(message);
      player.pause(player.random.below(400));
    }
    const std::array<std::uint64_t, 1> one = {1};
    player.await_log_room(1);
    player.log(one);
  }
  return 0;
}

// Whatever state a segment is in: it is attached and whole, or refused with a typed error in time.
int SegmentScene::attach(Player& player) {
  while (!player.finishing()) {
    for (const SegmentInfo& segment : list_segments()) {
      if (!is_ours(segment)) continue;
      const Deadline deadline = Deadline::in(std::chrono::microseconds(player.random.below(3000)));
      try {
        Stopwatch watch(player, 2, "attach", deadline);
        const auto queue = MessageQueue::attach(segment.name, deadline);
        MessageBuffer buffer;
        if (queue->get(buffer, Deadline::now()) == MessageQueue::Outcome::kOk && !read_payload(buffer[0])) {
          return player.fail(Finding::kDamaged, "a message of a new queue is not what was put");
        }
      } catch (const SegmentError& error) {
        const Reason reason = error.reason();
        if (reason != Reason::kNotFound && reason != Reason::kNotReady && reason != Reason::kWrongKind) {
          return player.fail(Finding::kBroken, std::string("attach: ") + error.what());
        }
      }
    }
    player.pause(player.random.below(2000));
  }
  return 0;
}

int SegmentScene::sweep(Player& player) {
  while (!player.finishing()) {
    player.pause(player.random.between(500, 10'000));
    Stopwatch watch(player, 2, "sweep", Deadline::never());
    for (const SegmentInfo& segment : sweep_segments()) {
      if (!segment.dead)
        return player.fail(Finding::kBroken, "a living process's segment was removed: " + segment.name);
    }
  }
  return 0;
}

void SegmentScene::logged(std::size_t, std::span<const std::uint64_t> words) {
  result_.count(Measure::kAcknowledged, words.size());
}

void SegmentScene::finish(Tormentor& tormentor, Result& result) {
  tormentor.calm();
  if (plan_.everybody_dies) tormentor.kill_everybody();
  tormentor.tell_to_finish();
  for (const std::size_t role : {kCreator, kAttacher, kSweeper}) {
    if (!tormentor.await_end(role)) return;
  }
  const std::size_t removed = sweep_segments().size();
  result.count(Measure::kRecovered, removed);
  for (const SegmentInfo& segment : list_segments()) {
    if (is_ours(segment)) result.find(Finding::kLeft, 1, segment.name);
  }
}

}  // namespace gristmill::campaign
