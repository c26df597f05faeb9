#pragma once

// A round of the message queue: producers, consumers, and who calls recover() meanwhile.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/message_queue.h"
#include "tests/campaign/ledger.h"
#include "tests/campaign/scene.h"

namespace gristmill::campaign {

class QueueScene : public Scene {
 public:
  QueueScene(const Plan& plan, Result& result);

  std::vector<Role> cast() const override;
  double least_life_us() const override;
  bool favours(std::string_view point) const override;
  int play(std::size_t role, Player& player) override;
  void began(std::size_t slot, std::size_t role, std::uint64_t life) override;
  void logged(std::size_t slot, std::span<const std::uint64_t> words) override;
  void ended(std::size_t slot, const Slot& record, bool killed) override;
  std::string described() const override;
  void finish(Tormentor& tormentor, Result& result) override;

 private:
  enum RoleIndex : std::size_t { kProducer, kConsumer, kSupervisor };
  // kCrowded: puts of little keep the queue full, and some of as much as it holds wait for their turn.
  enum class Pace { kFull, kSlowProducers, kSlowConsumers, kCrowded };
  struct Cast {
    std::size_t role = 0;
    std::uint64_t life = 0;
  };

  int produce(MessageQueue& queue, Player& player);
  int consume(MessageQueue& queue, Player& player);
  int supervise(MessageQueue& queue, Player& player);
  MessageQueue::PutResult put(MessageQueue& queue, Player& player, std::uint64_t first, std::uint64_t count,
                              Deadline deadline);
  std::size_t length_of(std::uint64_t tag) const;
  // Where it is crowded: whether this producer puts much.
  static bool puts_much(std::uint64_t life) { return life % 3 == 0; }
  // Whether it is written in place, when it is put alone.
  bool reserved(std::uint64_t tag) const;
  // How many small messages fit; leaves the queue as it was. REQUIRES: it is empty.
  std::int64_t room();

  const Plan plan_;
  Result& result_;
  Ledger ledger_;
  std::size_t producers_ = 1;
  std::size_t consumers_ = 1;
  std::size_t longest_ = 256;
  std::uint64_t most_ = 8;  // messages of one put_many
  Pace pace_ = Pace::kFull;
  std::unique_ptr<MessageQueue> queue_;
  std::int64_t room_ = 0;
  std::uint64_t gets_at_first_ = 0;
  std::vector<Cast> cast_;
  std::uint64_t at_stake_ = 0;  // with consumers that were killed inside a get
};

}  // namespace gristmill::campaign
