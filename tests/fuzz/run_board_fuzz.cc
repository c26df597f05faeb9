// A live run board whose words are overwritten between any two calls.
//
// input │ operation …

#include <memory>

#include "core/run_board.h"
#include "rollout/environment.h"
#include "tests/fuzz/fuzz_segment.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gristmill;
  using namespace gristmill::fuzz;
  static const auto made = RunBoard::create(segment_name("fuzz", "board"), 2);
  static SegmentFile file(made->name());
  file.restore_payload();
  Input input(data, size);
  const auto board = RunBoard::attach(made->name(), Deadline::now());
  const auto text = [&] {
    const auto bytes = input.bytes(input.byte());
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  for (int i = 0; i < 64 && !input.empty(); ++i) {
    const int index = input.byte() % 3;
    RunBoard::Row row = index == 2 ? board->learner() : board->row(index);
    switch (input.byte() % 8) {
      case 0:
        row.enter();
        row.set_description(text());
        row.set_phase(static_cast<Phase>(input.byte() % 7));
        break;
      case 1:
        row.set_error(text());
        row.add(Counter::kFrames, input.byte());
        row.spend(static_cast<Measure>(input.byte() % kStageCount), input.byte());
        row.trace({input.byte(), input.byte(), Measure::kCopy, input.byte()});
        board->note_publication(input.byte(), input.byte());
        break;
      case 2:
        row.prepare(input.byte());
        break;
      case 3:
        board->set_config(text());
        if (input.byte() == 0) board->request_stop();
        break;
      case 4:
        require(board->config().size() <= RunBoard::kTextBytes, "a configuration fits its place");
        require(row.error().size() <= RunBoard::kErrorBytes, "an error fits its place");
        require(row.phase() <= Phase::kFatal, "a phase is one of those there are");
        row.since_beat();
        row.identity();
        row.reached(Phase::kRunning);
        row.histogram(static_cast<Measure>(input.byte() % kMeasureCount));
        require(row.spans().read(input.word()).spans.size() <= row.spans().size(), "spans fit their ring");
        board->published_at(input.byte());
        board->tracing();
        board->await_change(input.byte(), Deadline::now());
        board->await_ready(Deadline::now());
        break;
      case 5:
        // What the learner does with it.
        try {
          EnvironmentSpec::from_json(row.description());
        } catch (const std::invalid_argument&) {
        }
        break;
      default:
        // Behind the number of rows, which is read at attach alone.
        damage_word(input, file.payload_words().subspan(1));
        break;
    }
  }
  return 0;
}
