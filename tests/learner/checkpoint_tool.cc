// For tests/python/test_checkpoint_format.py, which reads with the safetensors package what is
// written here, and the other way round.
//   checkpoint_tool write RUN_DIR   saves a checkpoint and prints its directory
//   checkpoint_tool read FILE       prints a line for each tensor: name, dtype, shape, hash of its bytes

#include <cstdio>
#include <exception>
#include <string_view>

#include "learner/content_hash.h"
#include "learner/safetensors.h"
#include "tests/learner/checkpoint_fixture.h"

int main(int argc, char** argv) {
  using namespace gristmill;
  if (argc != 3) return 2;
  try {
    if (std::string_view(argv[1]) == "write") {
      std::puts(save_checkpoint(argv[2], some_state(1000), 3).c_str());
      return 0;
    }
    const Safetensors file = read_safetensors(argv[2], Checksum::kOptional);
    for (std::size_t i = 0; i < file.tensors.size(); ++i) {
      const FieldSpec& spec = file.tensors[i];
      std::printf("%s %s", spec.name.c_str(), std::string(dtype_name(spec.dtype)).c_str());
      for (const std::int64_t extent : spec.shape) std::printf(" %lld", static_cast<long long>(extent));
      std::printf(" %s\n", hash_text(content_hash(file.bytes(i))).c_str());
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
