// A live trajectory queue whose words are overwritten between any two calls.
//
// input │ operation …

#include <memory>
#include <optional>

#include "core/trajectory_layout.h"
#include "core/trajectory_queue.h"
#include "tests/fuzz/fuzz_segment.h"

namespace gristmill::fuzz {
namespace {

constexpr std::int64_t kCapacity = 4;

const FieldSpecs& fields() {
  static const FieldSpecs specs = {{"a", DType::kInt64, {96}},
                                   {"b", DType::kInt64, {}},
                                   {"c", DType::kUInt8, {37}},
                                   {"d", DType::kFloat32, {0, 3}}};
  return specs;
}

void damage(Input& input, std::span<std::uint64_t> words) {
  static const QueueLayout layout = QueueLayout::of(fields(), kCapacity);
  const std::size_t control = offsetof(QueueControl, lock) / 8;
  const std::size_t places = layout.words_offset / 8;
  switch (input.byte() % 4) {
    case 0:
      damage_word(input, words.subspan(control, sizeof(QueueControl) / 8 - control));
      break;
    case 1:
      damage_word(input, words.subspan(layout.leases_offset / 8, 64));
      break;
    case 2:
      damage_word(input, words.subspan(places, kCapacity));
      break;
    default:
      words[places + input.byte() % kCapacity] =
          Place{input.byte(), input.half() % 4096, static_cast<PlaceState>(input.byte() % 8)}.pack();
      break;
  }
  free_lock_of_the_living(words[control]);
}

}  // namespace
}  // namespace gristmill::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gristmill;
  using namespace gristmill::fuzz;
  static const auto made = TrajectoryQueue::create(segment_name("fuzz", "queue"), fields(), kCapacity);
  static SegmentFile file(made->name());
  static const std::vector<std::byte> content(8 * 96 * 16);
  file.restore_payload();
  Input input(data, size);
  const auto queue = TrajectoryQueue::attach(made->name(), Deadline::now());
  std::optional<TrajectoryQueue::Batch> batches[2];
  for (int i = 0; i < 64 && !input.empty(); ++i) {
    switch (input.byte() % 9) {
      case 0:
      case 1: {
        const std::byte* const from[] = {content.data(), content.data(), content.data(), nullptr};
        queue->put_many(from, input.byte() % 9, Deadline::now());
        break;
      }
      case 2:
      case 3:
        try {
          auto got = queue->get_many(1 + input.byte() % kCapacity, Deadline::now());
          for (std::size_t f = 0; f < fields().size() && got.batch.size() > 0; ++f) {
            require(got.batch.size() <= kCapacity, "a batch is no longer than the queue");
            touch({got.batch.field(f), fields()[f].bytes() * static_cast<std::size_t>(got.batch.size())});
          }
          batches[i % 2] = std::move(got.batch);
        } catch (const std::logic_error&) {
          // The consumer's word says somebody else.
        }
        break;
      case 4:
        batches[input.byte() % 2].reset();
        break;
      case 5:
        queue->recover();
        break;
      case 6:
        queue->statistics();
        require(queue->size() >= 0 && queue->size() <= kCapacity, "no more is in than fits");
        if (input.byte() == 0) queue->close();
        break;
      default:
        damage(input, file.payload_words());
        break;
    }
  }
  return 0;
}
