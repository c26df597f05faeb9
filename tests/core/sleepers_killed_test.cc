// A thousand processes killed in their sleep, inside every kind of wait that there is, on the same few
// segments.

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "core/box.h"
#include "tests/core/forked.h"
#include "tests/core/message_fixture.h"
#include "tests/core/trajectory_fixture.h"

namespace gristmill {
namespace {

using namespace std::chrono_literals;

constexpr int kRounds = 50;
constexpr std::size_t kVictims = 20;  // of a round
constexpr std::uint64_t kTag = 7;     // of messages that are all of one length

enum Kind : std::size_t { kGet, kPut, kTakeTrajectory, kPutTrajectory, kWatch, kKinds };

// In an uninterrupted sleep of its own, not merely without a core.
bool asleep(pid_t pid) {
  std::FILE* file = std::fopen(("/proc/" + std::to_string(pid) + "/stat").c_str(), "re");
  if (file == nullptr) return false;
  char state = '?';
  const bool read = std::fscanf(file, "%*d (%*[^)]) %c", &state) == 1;
  std::fclose(file);
  return read && state == 'S';
}

class SleepersKilled : public testing::Test {
 protected:
  SleepersKilled() {
    while (put_tag(*full_, kTag) == MessageQueue::Outcome::kOk) {
    }
    EXPECT_TRUE(put_each(*full_trajectories_, 0, 4));
    publish();
  }

  void publish() {
    const std::int64_t value = ++published_;
    const auto* const bytes = reinterpret_cast<const std::byte*>(&value);
    ASSERT_EQ(box_->publish({&bytes, 1}, Deadline::in(20s)).outcome, Box::PublishOutcome::kOk);
  }

  // In a child: 0 once it had what it waited for.
  int wait(std::size_t kind, std::atomic<int>& at_it, Deadline deadline) {
    ++at_it;
    switch (kind) {
      case kGet:
        return get_tags(*empty_, 1, deadline) == MessageTags{kTag} ? 0 : 1;
      case kPut:
        return put_tag(*full_, kTag, deadline) == MessageQueue::Outcome::kOk ? 0 : 1;
      case kTakeTrajectory:
        return get_tags(*empty_trajectories_, 1, deadline).size() == 1 ? 0 : 1;
      case kPutTrajectory:
        return Grist(1, 1).put(*full_trajectories_, deadline).outcome == TrajectoryQueue::Outcome::kOk ? 0
                                                                                                       : 1;
      default:
        return box_->watch(static_cast<std::uint64_t>(published_), deadline) ? 0 : 1;
    }
  }

  // Gives one waiter of this kind what it waits for.
  void provide(std::size_t kind) {
    switch (kind) {
      case kGet:
        EXPECT_EQ(put_tag(*empty_, kTag), MessageQueue::Outcome::kOk);
        break;
      case kPut:
        EXPECT_EQ(get_tags(*full_, 1).size(), 1u);
        break;
      case kTakeTrajectory:
        EXPECT_TRUE(put_each(*empty_trajectories_, 1, 1));
        break;
      case kPutTrajectory:
        EXPECT_EQ(get_tags(*full_trajectories_, 1).size(), 1u);
        break;
      default:
        publish();
    }
  }

  const std::unique_ptr<MessageQueue> empty_ = fresh_message_queue(8192);
  const std::unique_ptr<MessageQueue> full_ = fresh_message_queue(8192);
  const std::unique_ptr<TrajectoryQueue> empty_trajectories_ = fresh_queue(4);
  const std::unique_ptr<TrajectoryQueue> full_trajectories_ = fresh_queue(4);
  const std::unique_ptr<Box> box_ =
      Box::create(segment_name("sleepers", "box"), {{.name = "n", .dtype = DType::kInt64, .shape = {1}}});
  std::int64_t published_ = 0;
  const SharedWithChildren<std::array<std::atomic<int>, 2>> at_it_;
};

TEST_F(SleepersKilled, AThousandOfThemHarmNobody) {
  for (int round = 0; round < kRounds; ++round) {
    (*at_it_)[0] = 0;
    std::vector<Forked> victims;
    for (std::size_t i = 0; i < kVictims; ++i) {
      // There is one consumer of trajectories at a time.
      constexpr std::array<std::size_t, 4> kOthers = {kGet, kPut, kPutTrajectory, kWatch};
      const std::size_t kind = i == 0 ? std::size_t{kTakeTrajectory} : kOthers[i % kOthers.size()];
      victims.emplace_back([&, kind] { return wait(kind, (*at_it_)[0], Deadline::never()); });
    }
    for (const Forked& victim : victims) {
      ASSERT_TRUE(eventually([&] { return (*at_it_)[0] == kVictims && asleep(victim.pid()); }));
    }
    for (const Forked& victim : victims) victim.signal(SIGKILL);
    victims.clear();
    for (std::size_t kind = 0; kind < kKinds; ++kind) {
      (*at_it_)[1] = 0;
      Forked waiter([&] { return wait(kind, (*at_it_)[1], Deadline::in(20s)); });
      ASSERT_TRUE(eventually([&] { return (*at_it_)[1] == 1; }));
      provide(kind);
      ASSERT_TRUE(waiter.succeeds()) << "kind " << kind << ", round " << round;
    }
  }
  EXPECT_EQ(empty_->size(), 0);
  EXPECT_EQ(empty_trajectories_->size(), 0);
}

}  // namespace
}  // namespace gristmill
