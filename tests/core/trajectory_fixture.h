#pragma once

// Trajectories that tell whether they are whole: every field is a function of the tag.

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/segment.h"
#include "core/trajectory_queue.h"

namespace gristmill {

inline std::uint64_t mixed(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ x >> 27) * 0x94D049BB133111EBull;
  return x ^ x >> 31;
}

// Fields of a size that fills pages well, of one that does not, of one element, and of none.
class Grist {
 public:
  static constexpr std::size_t kWords = 96;
  static constexpr std::size_t kOdd = 37;

  static FieldSpecs spec() {
    return {{"words", DType::kInt64, {static_cast<std::int64_t>(kWords)}},
            {"tag", DType::kInt64, {}},
            {"odd", DType::kUInt8, {static_cast<std::int64_t>(kOdd)}},
            {"none", DType::kFloat32, {0, 3}}};
  }

  // Trajectories tagged first, first + 1, …
  Grist(std::uint64_t first, std::size_t count) : words_(count * kWords), tags_(count), odd_(count * kOdd) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t tag = first + i;
      tags_[i] = tag;
      for (std::size_t w = 0; w < kWords; ++w) words_[i * kWords + w] = mixed(tag + w);
      for (std::size_t b = 0; b < kOdd; ++b) odd_[i * kOdd + b] = odd_byte(tag, b);
    }
  }

  std::array<const std::byte*, 4> fields() const {
    return {bytes(words_.data()), bytes(tags_.data()), bytes(odd_.data()), nullptr};
  }
  TrajectoryQueue::PutResult put(TrajectoryQueue& queue, Deadline deadline) const {
    return queue.put_many(fields(), static_cast<std::int64_t>(tags_.size()), deadline);
  }

  // The tags of a batch; nullopt when a trajectory in it is torn.
  static std::optional<std::vector<std::uint64_t>> tags(const TrajectoryQueue::Batch& batch) {
    std::vector<std::uint64_t> tags(static_cast<std::size_t>(batch.size()));
    std::memcpy(tags.data(), batch.field(1), tags.size() * sizeof tags[0]);
    for (std::size_t i = 0; i < tags.size(); ++i) {
      for (std::size_t w = 0; w < kWords; ++w) {
        std::uint64_t word = 0;
        std::memcpy(&word, batch.field(0) + (i * kWords + w) * sizeof word, sizeof word);
        if (word != mixed(tags[i] + w)) return std::nullopt;
      }
      for (std::size_t b = 0; b < kOdd; ++b) {
        if (batch.field(2)[i * kOdd + b] != odd_byte(tags[i], b)) return std::nullopt;
      }
    }
    return tags;
  }

 private:
  static std::byte odd_byte(std::uint64_t tag, std::size_t b) {
    return static_cast<std::byte>(mixed(tag) >> b % 57);
  }
  template <class T>
  static const std::byte* bytes(const T* data) {
    return reinterpret_cast<const std::byte*>(data);
  }

  std::vector<std::uint64_t> words_;
  std::vector<std::uint64_t> tags_;
  std::vector<std::byte> odd_;
};

inline std::unique_ptr<TrajectoryQueue> fresh_queue(std::int64_t capacity,
                                                    const FieldSpecs& spec = Grist::spec()) {
  static int number = 0;
  return TrajectoryQueue::create(segment_name("trajectory-queue-test", "q" + std::to_string(number++)), spec,
                                 capacity);
}

// Puts `tags` one by one; true when each went in at once.
inline bool put_each(TrajectoryQueue& queue, std::uint64_t first, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    if (Grist(first + i, 1).put(queue, Deadline::now()).outcome != TrajectoryQueue::Outcome::kOk)
      return false;
  }
  return true;
}

// Takes n and releases them; empty when there are none in time, or one is torn.
inline std::vector<std::uint64_t> get_tags(TrajectoryQueue& queue, std::int64_t n,
                                           Deadline deadline = Deadline::now()) {
  const TrajectoryQueue::GetResult got = queue.get_many(n, deadline);
  if (got.outcome != TrajectoryQueue::Outcome::kOk) return {};
  return Grist::tags(got.batch).value_or(std::vector<std::uint64_t>{});
}

}  // namespace gristmill
