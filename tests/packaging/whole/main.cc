// Links all four libraries; asks for a run that is refused before anything starts.
#include <cstdio>

#include "learner/train.h"

int main() {
  const auto config = gristmill::parse_config("env: {id: cartpole}\n", "main.cc", {});
  try {
    gristmill::train(config, {.worker_command = {"true"}, .resume_from = "/nonexistent"}, {});
  } catch (const std::exception& error) {
    std::printf("refused, as it should be: %s\n", error.what());
    return 0;
  }
  return 1;
}
