#pragma once

// A round of the trajectory queue: producers, the one consumer, and who calls recover() meanwhile.

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "core/trajectory_queue.h"
#include "tests/campaign/ledger.h"
#include "tests/campaign/payload.h"
#include "tests/campaign/scene.h"

namespace gristmill::campaign {

class TrajectoryScene : public Scene {
 public:
  TrajectoryScene(const Plan& plan, Result& result);

  std::vector<Role> cast() const override;
  int play(std::size_t role, Player& player) override;
  void began(std::size_t slot, std::size_t role, std::uint64_t life) override;
  void logged(std::size_t slot, std::span<const std::uint64_t> words) override;
  void ended(std::size_t slot, const Slot& record, bool killed) override;
  void finish(Tormentor& tormentor, Result& result) override;

 private:
  enum RoleIndex : std::size_t { kProducer, kConsumer, kSupervisor };
  struct Cast {
    std::size_t role = 0;
    std::uint64_t life = 0;
    std::vector<std::uint64_t> noted;  // the last tags that it logged
  };
  static constexpr std::int64_t kMostPut = 3;
  static constexpr std::int64_t kMostTaken = 4;

  int produce(TrajectoryQueue& queue, Player& player);
  int consume(TrajectoryQueue& queue, Player& player);
  int supervise(TrajectoryQueue& queue, Player& player);
  TrajectoryQueue::PutResult put(TrajectoryQueue& queue, std::uint64_t first, std::int64_t count,
                                 Deadline deadline);
  std::optional<Payload> payload_of(const TrajectoryQueue::Batch& batch, std::int64_t index) const;
  // Fills the queue up, and empties it of nothing: every place must be usable. By the round's own process.
  void fill_up(Result& result);

  const Plan plan_;
  Result& result_;
  Ledger ledger_;
  std::size_t producers_ = 1;
  std::size_t words_ = 2;  // bytes of the fields: 8 × words_, 8, odd_
  std::size_t odd_ = 1;
  std::int64_t capacity_ = 1;
  std::unique_ptr<TrajectoryQueue> queue_;
  std::vector<Cast> cast_;
};

}  // namespace gristmill::campaign
