#pragma once

// A run directory of its own for each test, and a state with something in every entry.

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <numeric>
#include <string>

#include "learner/checkpoint.h"

namespace gristmill {

class CheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "gristmill-checkpoint-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    run_ = pattern;
  }
  void TearDown() override {
    std::error_code ignored;
    std::filesystem::remove_all(run_, ignored);
  }

  std::filesystem::path run_;
};

// Parameters count up from `frames`, so that two states are never alike.
inline CheckpointState some_state(std::int64_t frames, std::int64_t parameters = 12) {
  CheckpointState state;
  state.layout = {{"trunk.0.weight", DType::kFloat32, {parameters / 4, 3}},
                  {"trunk.0.bias", DType::kFloat32, {parameters / 4}}};
  state.parameters.resize(static_cast<std::size_t>(parameters));
  std::iota(state.parameters.begin(), state.parameters.end(), static_cast<float>(frames));
  state.first_moment = state.parameters;
  for (float& x : state.first_moment) x *= -0.1f;
  state.second_moment = state.parameters;
  for (float& x : state.second_moment) x *= 0.01f;
  state.optimizer_steps = 41;
  state.frames = frames;
  state.version = 7;
  state.updates = 6;
  state.episodes = 123;
  state.progress = 0.1;
  state.elapsed_s = 1.0 / 3;
  state.recent_returns = {1.1f, -2.5f, 475};
  state.recent_lengths = {10, 20, 475};
  state.counters = {{"dropped_stale", 3}};
  state.random_states = {{"learner", "0123456789abcdef"}, {"stream", "12 \"quoted\" \n"}};
  state.config_hash = "00ff00ff00ff00ff";
  state.environment = R"({"observation_shape": [4]})";
  return state;
}

}  // namespace gristmill
