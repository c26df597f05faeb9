#pragma once

// A round of the box: writers, readers, those who hold pins, and watchers.

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "core/box.h"
#include "tests/campaign/box_audit.h"
#include "tests/campaign/scene.h"
#include "tests/campaign/shared.h"

namespace gristmill::campaign {

class BoxScene : public Scene {
 public:
  BoxScene(const Plan& plan, Result& result);

  std::vector<Role> cast() const override;
  int play(std::size_t role, Player& player) override;
  void began(std::size_t slot, std::size_t role, std::uint64_t life) override;
  void logged(std::size_t slot, std::span<const std::uint64_t> words) override;
  void ended(std::size_t slot, const Slot& record, bool killed) override;
  void finish(Tormentor& tormentor, Result& result) override;

 private:
  enum RoleIndex : std::size_t { kWriter, kReader, kPinner, kWatcher };
  // The highest version that the writer of each slot was told. Single writer: whoever plays in that slot.
  struct Acknowledged {
    std::array<std::atomic<std::uint64_t>, 16> version{};
    // When each of the last versions was acknowledged: by whoever wrote it, 0 meanwhile.
    static constexpr std::uint64_t kStamps = 4096;
    struct Stamp {
      std::atomic<std::uint64_t> at{0};
      std::atomic<std::uint64_t> version{0};
    };
    std::array<Stamp, kStamps> stamps{};

    void stamp(std::uint64_t newest, std::uint64_t now);
    // When the first version above `seen` and up to `newest` was acknowledged; `unknown` when nobody lived to
    // say.
    std::uint64_t first_above(std::uint64_t seen, std::uint64_t newest, std::uint64_t unknown) const;
  };
  struct Cast {
    std::size_t role = 0;
    std::vector<std::uint64_t> words;  // logged, and not a whole entry yet
    std::uint64_t last_write = 0;
    std::uint64_t last_version = 0;  // seen
  };
  // Room for what a reader copies.
  struct Copy {
    std::vector<std::byte> a, b;
    std::vector<std::uint64_t> words;
  };

  int write(Box& box, Player& player);
  Box::PublishResult write_one(Box& box, Player& player, std::uint64_t kind, std::uint64_t tag,
                               Deadline deadline);
  int read(Box& box, Player& player);
  int hold(Box& box, Player& player);
  int watch(Box& box, Player& player);
  // Looks at arrays (not when null) and words of one version. False: they are torn, or older than what was
  // acknowledged before; `problem` says it.
  bool inspect(const std::byte* a, const std::byte* b, std::span<const std::uint64_t> words, BoxSight* sight,
               std::string* problem) const;
  std::uint64_t newest_acknowledged() const;
  std::vector<std::byte> array_of(std::uint64_t tag, std::size_t bytes) const;

  const Plan plan_;
  Result& result_;
  BoxAudit audit_;
  std::size_t writers_ = 1;
  std::size_t bytes_a_ = 8;
  std::size_t bytes_b_ = 8;
  bool slow_ = false;  // writers take their time: watchers sleep
  std::unique_ptr<Box> box_;
  Shared<Acknowledged> acknowledged_;
  std::vector<Cast> cast_;
};

}  // namespace gristmill::campaign
