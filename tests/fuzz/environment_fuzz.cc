// The description of an environment, as a worker or a checkpoint gives it.

#include <stdexcept>

#include "rollout/environment.h"
#include "tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gristmill;
  using namespace gristmill::fuzz;
  try {
    const EnvironmentSpec spec = EnvironmentSpec::from_json(Input(data, size).text());
    require(spec.observation_elements() > 0 && spec.observation_bytes() > 0, "sizes are positive");
    require(spec.discrete() != (spec.action_dims > 0), "an action is of one kind");
    require(EnvironmentSpec::from_json(spec.to_json()) == spec, "what is written reads back");
  } catch (const std::invalid_argument&) {
  }
  return 0;
}
