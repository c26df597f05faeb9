// A live box whose words are overwritten between any two calls.
//
// input │ operation …

#include <memory>
#include <optional>

#include "core/box.h"
#include "tests/fuzz/fuzz_segment.h"

namespace gristmill::fuzz {
namespace {

const FieldSpecs& arrays() {
  static const FieldSpecs specs = {{"a", DType::kFloat32, {300}}, {"b", DType::kUInt8, {37}}};
  return specs;
}
const ScalarSpecs& scalars() {
  static const ScalarSpecs specs = {{"flag", ScalarType::kBool, 0},
                                    {"count", ScalarType::kInt64, 0},
                                    {"rate", ScalarType::kFloat64, 0},
                                    {"text", ScalarType::kText, 20},
                                    {"time", ScalarType::kTimeUtc, 0}};
  return specs;
}

void damage(Input& input, std::span<std::uint64_t> words) {
  static const BoxLayout layout = BoxLayout::of(arrays(), scalars());
  const std::size_t begin = offsetof(BoxControl, newest) / 8;
  switch (input.byte() % 3) {
    case 0:
      damage_word(input, words.subspan(begin, sizeof(BoxControl) / 8 - begin));
      break;
    case 1:
      damage_word(input, words.subspan(layout.leases_at / 8, 64));
      break;
    default:
      damage_word(input, words.subspan(layout.blocks_at / 8, kBoxBlocks * layout.block_stride));
      break;
  }
  free_lock_of_the_living(words[offsetof(BoxControl, arrays) / 8]);
  free_lock_of_the_living(words[offsetof(BoxControl, writer) / 8]);
}

}  // namespace
}  // namespace gristmill::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gristmill;
  using namespace gristmill::fuzz;
  static const auto made = Box::create(segment_name("fuzz", "box"), arrays(), scalars());
  static SegmentFile file(made->name());
  file.restore_payload();
  Input input(data, size);
  const auto box = Box::attach(made->name(), Deadline::now());
  const auto reader = Box::attach(made->name(), Deadline::now(), Box::Access::kReadOnly);
  std::vector<std::byte> a(arrays()[0].bytes()), b(arrays()[1].bytes());
  std::byte* const out[] = {a.data(), b.data()};
  std::vector<std::uint64_t> words(box->words());
  std::optional<Box::Pin> pins[2];
  for (int i = 0; i < 64 && !input.empty(); ++i) {
    try {
      switch (input.byte() % 11) {
        case 0: {
          const std::byte* const in[] = {a.data(), b.data()};
          box->publish(in, Deadline::now());
          break;
        }
        case 1: {
          const std::byte* const in[] = {nullptr, b.data()};
          box->update({}, in, Deadline::now());
          break;
        }
        case 2:
          box->write_int(1, static_cast<std::int64_t>(input.word()), Deadline::now());
          box->write_text(3, std::string(input.byte() % 21, 'x'), Deadline::now());
          break;
        case 3:
          box->read_words(0, words);
          require(box->read_text(3).size() <= 20, "a text is no longer than its capacity");
          box->read_bool(0);
          box->read_float(2);
          break;
        case 4:
          pins[i % 2] = box->pin(input.byte() % 2 ? std::span(words) : std::span<std::uint64_t>());
          touch({pins[i % 2]->field(0), a.size()});
          touch({pins[i % 2]->field(1), b.size()});
          break;
        case 5:
          pins[input.byte() % 2].reset();
          break;
        case 6:
          (input.byte() % 2 ? *box : *reader).read_into(out, words);
          break;
        case 7: {
          auto write = box->begin_write(Deadline::now());
          const std::byte* const in[] = {a.data(), nullptr};
          if (write.outcome() == Box::PublishOutcome::kOk && input.byte() % 2) write.commit({}, in);
          break;
        }
        case 8:
          box->watch(input.byte(), Deadline::now());
          reader->watch(input.byte(), Deadline::now());
          box->skipped_publishes();
          break;
        default:
          damage(input, file.payload_words());
          break;
      }
    } catch (const std::runtime_error&) {
      // Its newest slot is none, or all pins are held.
    }
  }
  return 0;
}
