// Attaching to a segment of any kind whose header and payload were damaged, and using what was attached.
//
// input │ kind │ flags │ damage … : 0: bytes at an offset │ 1: another length │ 2: a word of the header

#include <memory>

#include "core/box.h"
#include "core/message_layout.h"
#include "core/message_queue.h"
#include "core/run_board.h"
#include "core/trajectory_layout.h"
#include "core/trajectory_queue.h"
#include "tests/fuzz/fuzz_segment.h"

namespace gristmill::fuzz {
namespace {

constexpr std::size_t kChecksumAt = 72;  // of the header: the checksum of bytes 4 … 71

// One of each kind, made once.
struct Kinds {
  std::unique_ptr<TrajectoryQueue> trajectories = TrajectoryQueue::create(
      segment_name("fuzz", "queue"),
      {{"a", DType::kFloat32, {3, 5}}, {"b", DType::kUInt8, {37}}, {"none", DType::kFloat32, {0}}}, 3);
  std::unique_ptr<Box> box =
      Box::create(segment_name("fuzz", "box"), {{"a", DType::kFloat32, {7}}, {"b", DType::kBool, {}}},
                  {{"i", ScalarType::kInt64, 0}, {"t", ScalarType::kText, 20}});
  std::unique_ptr<RunBoard> board = RunBoard::create(segment_name("fuzz", "board"), 2);
  std::unique_ptr<MessageQueue> messages =
      MessageQueue::create(segment_name("fuzz", "messages"), {.max_size_bytes = 4000, .max_messages = 9});
  SegmentFile files[4] = {SegmentFile(trajectories->name()), SegmentFile(box->name()),
                          SegmentFile(board->name()), SegmentFile(messages->name())};
};

void store(std::vector<std::byte>& file, std::size_t at, std::uint64_t word) {
  if (at + sizeof word <= file.size()) std::memcpy(file.data() + at, &word, sizeof word);
}

// What who damages on purpose would do as well: otherwise nothing behind a checksum is ever reached.
void mend_checksums(std::vector<std::byte>& file, std::size_t kind) {
  if (file.size() < Segment::kHeaderBytes) return;
  const std::byte* const payload = file.data() + Segment::kHeaderBytes;
  const std::size_t payload_bytes = file.size() - Segment::kHeaderBytes;
  std::uint64_t numbers[4] = {};
  if (kind == 0 && payload_bytes >= sizeof(QueueControl)) {
    std::memcpy(numbers, payload, 2 * sizeof numbers[0]);
    numbers[2] = payload_bytes;
    const std::size_t fields = numbers[1] < kMaxFields ? numbers[1] : kMaxFields;
    store(file, Segment::kHeaderBytes + offsetof(QueueControl, geometry_hash),
          hash_bytes(payload + offsetof(QueueControl, fields), fields * sizeof(FieldRecord),
                     hash_bytes(numbers, 3 * sizeof numbers[0])));
  }
  if (kind == 3 && payload_bytes >= sizeof(MessageControl)) {
    std::memcpy(numbers, payload, 3 * sizeof numbers[0]);
    numbers[3] = payload_bytes;
    store(file, Segment::kHeaderBytes + offsetof(MessageControl, geometry_hash),
          hash_bytes(numbers, sizeof numbers));
  }
  store(file, kChecksumAt, hash_bytes(file.data() + 4, kChecksumAt - 4));
}

void use(TrajectoryQueue& queue) {
  queue.statistics();
  queue.recover();
  std::vector<std::vector<std::byte>> data;
  std::vector<const std::byte*> fields;
  for (const FieldSpec& field : queue.spec()) {
    data.emplace_back(field.bytes() + 1);
    fields.push_back(data.back().data());
  }
  queue.put_many(fields, 1, Deadline::now());
  const auto got = queue.get_many(1, Deadline::now());
  if (got.batch.size() == 0) return;
  for (std::size_t f = 0; f < queue.spec().size(); ++f) {
    touch({got.batch.field(f), queue.spec()[f].bytes() * static_cast<std::size_t>(got.batch.size())});
  }
}

void use(Box& box) {
  std::vector<std::vector<std::byte>> data;
  std::vector<std::byte*> out;
  for (const FieldSpec& field : box.spec()) {
    data.emplace_back(field.bytes() + 1);
    out.push_back(data.back().data());
  }
  std::vector<std::uint64_t> words(box.words());
  box.read_into(out, words);
  const std::vector<const std::byte*> in(out.begin(), out.end());
  box.update({}, in, Deadline::now());
  for (std::size_t i = 0; i < box.scalars().size(); ++i) {
    if (box.scalars()[i].sized()) box.read_text(i);
  }
}

void use(RunBoard& board) {
  board.config();
  for (int i = 0; i < board.rows(); ++i) {
    board.row(i).description();
    board.row(i).error();
    board.row(i).phase();
  }
  board.row(0).set_phase(Phase::kRunning);
}

void use(MessageQueue& queue) {
  MessageBuffer buffer;
  queue.statistics();
  queue.recover();
  queue.put({}, Deadline::now());
  const std::vector<std::byte> large(queue.largest_message() < 9000 ? queue.largest_message() : 9000);
  queue.put(large, Deadline::now());
  queue.get_many(100, MessageQueue::kNoLimit, buffer, Deadline::now());
  for (std::size_t i = 0; i < buffer.size(); ++i) touch(buffer[i]);
}

void attach(std::size_t kind, const std::string& name, bool read_only) {
  switch (kind) {
    case 0:
      return use(*TrajectoryQueue::attach(name, Deadline::now()));
    case 1: {
      const auto box =
          Box::attach(name, Deadline::now(), read_only ? Box::Access::kReadOnly : Box::Access::kReadWrite);
      if (!read_only) return use(*box);
      std::vector<std::uint64_t> words(box->words());
      box->read_words(0, words);
      return;
    }
    case 2:
      return use(*RunBoard::attach(name, Deadline::now()));
    default:
      return use(*MessageQueue::attach(name, Deadline::now()));
  }
}

}  // namespace
}  // namespace gristmill::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gristmill;
  using namespace gristmill::fuzz;
  static Kinds kinds;
  Input input(data, size);
  const std::size_t kind = input.byte() % 4;
  const SegmentFile& target = kinds.files[kind];
  const std::uint8_t flags = input.byte();
  std::vector<std::byte> file = target.made();
  for (int i = 0; i < 16 && !input.empty(); ++i) {
    switch (input.byte() % 3) {
      case 0: {
        // The structures lie at the beginning; where exactly, the fuzzer finds out.
        const std::size_t at = input.half() % target.size();
        const auto with = input.bytes(1 + input.byte() % 16);
        if (at + with.size() <= file.size()) std::memcpy(file.data() + at, with.data(), with.size());
        break;
      }
      case 1:
        file.resize(input.half() * std::size_t{4});
        break;
      default: {
        const std::size_t at = input.byte() % 10 * 8u;
        store(file, at, input.word());
        break;
      }
    }
  }
  if ((flags & 1) != 0) {
    // Sizes that fit the file, so that the payload is what is wrong.
    store(file, 32, file.size() - Segment::kHeaderBytes);
    store(file, 40, file.size());
  }
  if ((flags & 2) != 0) mend_checksums(file, kind);
  target.write(file);
  try {
    attach(kind, target.name(), (flags & 4) != 0);
  } catch (const SegmentError&) {
  } catch (const std::runtime_error&) {  // a box whose newest slot is none
  } catch (const std::logic_error&) {    // another consumer, or so the segment says
  }
  return 0;
}
