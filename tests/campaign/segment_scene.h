#pragma once

// Creation and attachment: creators killed at every step, others who try to attach meanwhile, and the sweep
// afterwards.

#include <vector>

#include "core/segment.h"
#include "tests/campaign/scene.h"

namespace gristmill::campaign {

class SegmentScene : public Scene {
 public:
  SegmentScene(const Plan& plan, Result& result) : plan_(plan), result_(result) {}

  std::vector<Role> cast() const override;
  int play(std::size_t role, Player& player) override;
  void began(std::size_t, std::size_t, std::uint64_t) override {}
  void logged(std::size_t slot, std::span<const std::uint64_t> words) override;
  void ended(std::size_t, const Slot&, bool) override {}
  void finish(Tormentor& tormentor, Result& result) override;

 private:
  enum RoleIndex : std::size_t { kCreator, kAttacher, kSweeper };

  bool is_ours(const SegmentInfo& segment) const;
  int create(Player& player);
  int attach(Player& player);
  int sweep(Player& player);

  const Plan plan_;
  Result& result_;
};

}  // namespace gristmill::campaign
