// A live message queue whose words are overwritten between any two calls.
//
// input │ options │ operation …

#include <memory>
#include <optional>

#include "core/message_layout.h"
#include "core/message_queue.h"
#include "tests/fuzz/fuzz_segment.h"

namespace gristmill::fuzz {
namespace {

struct Kind {
  explicit Kind(int number)
      : queue(MessageQueue::create(
            segment_name("fuzz", "messages" + std::to_string(number)),
            {.max_size_bytes = 9000, .max_messages = 20, .overflow = static_cast<Overflow>(number)})),
        file(queue->name()),
        ring(MessageLayout::of(queue->options()).ring_offset / 8) {}
  std::unique_ptr<MessageQueue> queue;
  SegmentFile file;
  std::size_t ring;
};

void damage(Input& input, Kind& kind) {
  const auto words = kind.file.payload_words();
  const auto at = [](std::size_t offset) { return offset / 8; };
  switch (input.byte() % 4) {
    case 0:  // the control block, behind the geometry
      damage_word(input, words.subspan(4, at(sizeof(MessageControl)) - 4));
      break;
    case 1:  // leases
      damage_word(input, words.subspan(at(MessageLayout::of(kind.queue->options()).leases_offset), 64));
      break;
    case 2: {  // the words of records: every second one of the ring's
      const std::size_t place = input.half() % ((words.size() - kind.ring) / 2) * 2 + 1;
      damage_word(input, words.subspan(kind.ring + place, 1));
      break;
    }
    default: {  // a word that is one of a record
      std::uint64_t& word = words[kind.ring + input.half() % ((words.size() - kind.ring) / 2) * 2 + 1];
      word = RecordWord{input.half(), static_cast<RecordState>(input.byte() % 16), input.byte()}.pack();
      break;
    }
  }
  free_lock_of_the_living(words[at(offsetof(MessageControl, put_lock))]);
  free_lock_of_the_living(words[at(offsetof(MessageControl, get_lock))]);
}

void check(MessageQueue& queue, std::span<const std::byte> message) {
  require(message.size() <= queue.capacity_bytes(), "a message is no longer than the ring");
  touch(message);
}

}  // namespace
}  // namespace gristmill::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gristmill;
  using namespace gristmill::fuzz;
  static Kind kinds[] = {Kind(0), Kind(1), Kind(2)};
  static const std::vector<std::byte> content(9100);
  Input input(data, size);
  Kind& kind = kinds[input.byte() % 3];
  kind.file.restore_payload();
  const auto queue = MessageQueue::attach(kind.queue->name(), Deadline::now());
  std::optional<MessageQueue::Taken> taken[2];
  std::optional<MessageQueue::Reservation> reserved[2];
  const auto message = [&] { return std::span(content).first(input.half() % content.size()); };
  for (int i = 0; i < 64 && !input.empty(); ++i) {
    switch (input.byte() % 14) {
      case 0:
      case 1:
        queue->put(message(), Deadline::now());
        break;
      case 2: {
        const std::span<const std::byte> many[] = {message(), message(), message()};
        queue->put_many(many, Deadline::now());
        break;
      }
      case 3: {
        auto got = queue->reserve(input.half() % 9100, Deadline::now());
        if (got.outcome == MessageQueue::Outcome::kOk) reserved[i % 2] = std::move(got.reservation);
        break;
      }
      case 4:
        if (auto& one = reserved[input.byte() % 2]; one && *one) {
          std::memset(one->bytes().data(), 1, one->bytes().size());
          one->commit(one->bytes().size() - one->bytes().size() % (1u + input.byte()));
        }
        break;
      case 5:
        reserved[input.byte() % 2].reset();
        break;
      case 6:
      case 7: {
        MessageBuffer buffer;
        queue->get_many(1 + input.byte(), input.byte() % 2 ? MessageQueue::kNoLimit : 5000, buffer,
                        Deadline::now());
        for (std::size_t m = 0; m < buffer.size(); ++m) check(*queue, buffer[m]);
        break;
      }
      case 8: {
        auto got = queue->take(input.byte() % 2 ? 1 + input.byte() : std::numeric_limits<std::int64_t>::max(),
                               MessageQueue::kNoLimit, Deadline::now());
        for (std::size_t m = 0; m < got.batch.size(); ++m) check(*queue, got.batch[m]);
        taken[i % 2] = std::move(got.batch);
        break;
      }
      case 9:
        taken[input.byte() % 2].reset();
        break;
      case 10:
        queue->recover();
        break;
      case 11:
        queue->statistics();
        queue->holders();
        queue->size();
        require(queue->bytes_used() <= queue->capacity_bytes(), "no more is used than there is");
        queue->wait_readable(Deadline::now());
        queue->wait_writable(input.half(), Deadline::now());
        if (input.byte() == 0) queue->close();
        break;
      default:
        damage(input, kind);
        break;
    }
  }
  return 0;
}
