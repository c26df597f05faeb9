// A safetensors file of anybody's, and one that bears our seal.
//
// input │ whether to make the seal fit │ file

#include "learner/safetensors.h"

#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/reseal.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gristmill;
  using namespace gristmill::fuzz;
  Input input(data, size);
  const bool sealed = input.byte() % 2 == 1;
  const auto rest = std::as_bytes(input.bytes(size));
  std::vector<std::byte> file(rest.begin(), rest.end());
  if (sealed) reseal_safetensors(file);
  Safetensors parsed;
  try {
    parsed = parse_safetensors(file, "fuzz.safetensors", sealed ? Checksum::kRequired : Checksum::kOptional);
  } catch (const SafetensorsError&) {
    return 0;
  }
  for (std::size_t i = 0; i < parsed.tensors.size(); ++i) touch(parsed.bytes(i));
  std::vector<std::byte> again;
  try {
    again = to_safetensors(parsed.tensors, parsed.data, parsed.metadata);
  } catch (const std::invalid_argument&) {
    return 0;  // names that others may use and we do not write
  }
  const Safetensors back = parse_safetensors(again, "again.safetensors");
  require(back.data == parsed.data && back.metadata == parsed.metadata, "what is written reads back");
  return 0;
}
