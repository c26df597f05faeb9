// A checkpoint whose files were damaged, their seals and hashes made to fit, or not.
//
// input │ flags │ damage … : file, offset, what becomes of it │ or, with flag 4, the text of state.json

#include "learner/checkpoint.h"

#include <unistd.h>

#include <array>
#include <fstream>

#include "learner/checkpoint_state.h"
#include "learner/durable_file.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/reseal.h"

namespace gristmill::fuzz {
namespace {

namespace fs = std::filesystem;
constexpr std::array kNames = {"model.safetensors", "optimizer.safetensors", "state.json"};

// A small checkpoint in a folder of its own.
struct Made {
  // In memory where it can be: files are written for every input.
  Made()
      : folder((fs::exists("/dev/shm") ? fs::path("/dev/shm") : fs::temp_directory_path()) /
               ("checkpoint-fuzz-" + std::to_string(::getpid()))) {
    CheckpointState state;
    state.layout = {{"trunk.weight", DType::kFloat32, {2, 3}}, {"trunk.bias", DType::kFloat32, {2}}};
    state.parameters = {1, 2, 3, 4, 5, 6, 7, 8};
    state.first_moment = state.second_moment = state.parameters;
    state.recent_returns = {1.5F, 2.5F};
    state.recent_lengths = {3, 4};
    state.counters = {{"launches", 1}, {"dropped_stale", 0}};
    state.random_states = {{"minibatches", "1 2 3 4 "}};
    state.environment = R"({"action":{"count":2},"observation":{"dtype":"float32","shape":[4]}})";
    checkpoint = save_checkpoint(folder, state, 1);
    for (std::size_t i = 0; i < kNames.size(); ++i) files[i] = read_file(checkpoint / kNames[i]);
  }
  ~Made() {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  }
  fs::path folder, checkpoint;
  std::array<std::vector<std::byte>, 3> files;
};

using Files = std::array<std::vector<std::byte>, 3>;

void damage(Input& input, Files& files) {
  std::vector<std::byte>& file = files[input.byte() % files.size()];
  const std::size_t at = input.half();
  switch (input.byte() % 4) {
    case 0: {
      const auto with = std::as_bytes(input.bytes(input.byte()));
      if (at + with.size() <= file.size()) std::memcpy(file.data() + at, with.data(), with.size());
      return;
    }
    case 1:
      if (at <= file.size()) file.resize(at);
      return;
    case 2: {
      const auto with = std::as_bytes(input.bytes(input.byte()));
      if (at <= file.size())
        file.insert(file.begin() + static_cast<std::ptrdiff_t>(at), with.begin(), with.end());
      return;
    }
    default:
      if (at < file.size()) file.erase(file.begin() + static_cast<std::ptrdiff_t>(at));
      return;
  }
}

std::string text_of(const std::vector<std::byte>& file) {
  return {reinterpret_cast<const char*>(file.data()), file.size()};
}

// state.json names the hashes of the other two.
void mend(Files& files, const Files& made) {
  std::string state = text_of(files[2]);
  for (const std::size_t i : {0, 1}) {
    reseal_safetensors(files[i]);
    const std::string was = hash_text(content_hash(made[i]));
    const std::size_t at = state.find(was);
    if (at != std::string::npos) state.replace(at, was.size(), hash_text(content_hash(files[i])));
  }
  reseal(state);
  const auto bytes = std::as_bytes(std::span(state));
  files[2].assign(bytes.begin(), bytes.end());
}

void parse_state(std::string text) {
  reseal(text);
  FileHashes hashes;
  CheckpointState state;
  try {
    state = parse_checkpoint_state(text, "state.json", hashes);
  } catch (const CheckpointError&) {
    return;
  }
  std::string again;
  try {
    again = checkpoint_state_text(state, hashes);
  } catch (const std::logic_error&) {
    return;  // a text in it stands where the seal does
  }
  FileHashes hashes_again;
  require(parse_checkpoint_state(again, "again", hashes_again) == state && hashes_again == hashes,
          "what is written reads back");
}

}  // namespace
}  // namespace gristmill::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gristmill;
  using namespace gristmill::fuzz;
  static const Made made;
  Input input(data, size);
  const std::uint8_t flags = input.byte();
  if ((flags & 4) != 0) {
    parse_state(input.text());
    return 0;
  }
  Files files = made.files;
  for (int i = 0; i < 8 && !input.empty(); ++i) damage(input, files);
  if ((flags & 1) != 0) mend(files, made.files);
  for (std::size_t i = 0; i < files.size(); ++i) {
    std::ofstream(made.checkpoint / kNames[i], std::ios::binary | std::ios::trunc)
        .write(reinterpret_cast<const char*>(files[i].data()), static_cast<std::streamsize>(files[i].size()));
  }
  try {
    const CheckpointState state = load_checkpoint(made.checkpoint);
    std::int64_t elements = 0;
    for (const FieldSpec& spec : state.layout) elements += spec.elements();
    const auto count = static_cast<std::size_t>(elements);
    require(state.parameters.size() == count && state.first_moment.size() == count &&
                state.second_moment.size() == count,
            "a checkpoint's arrays fit its layout");
  } catch (const CheckpointError&) {
  }
  return 0;
}
