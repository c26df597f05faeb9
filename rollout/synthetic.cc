#include "rollout/synthetic.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <thread>

namespace gristmill {

namespace {

using Json = nlohmann::json;

[[noreturn]] void refuse(const std::string& key, const Json& value, const std::string& expected) {
  throw std::invalid_argument("env.kwargs: " + key + " is " + value.dump() + "; expected " + expected);
}

std::int64_t count_in(const std::string& key, const Json& value, std::int64_t most) {
  if (!value.is_number_integer() || value.get<std::int64_t>() < 1 || value.get<std::int64_t>() > most) {
    refuse(key, value, "an integer from 1 to " + std::to_string(most));
  }
  return value.get<std::int64_t>();
}

bool flag_in(const std::string& key, const Json& value) {
  if (!value.is_boolean()) refuse(key, value, "true or false");
  return value.get<bool>();
}

}  // namespace

SyntheticOptions SyntheticOptions::from_json(const std::string& json) {
  const Json root = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object()) refuse("all of it", json, "a mapping");
  SyntheticOptions options;
  for (const auto& [key, value] : root.items()) {
    if (key == "observation") {
      if (!value.is_array() || value.empty() || value.size() > 8)
        refuse(key, value, "a shape such as [84, 84, 4]");
      options.observation_shape.clear();
      std::int64_t left = std::int64_t{1} << 30;
      for (const Json& extent : value) {
        options.observation_shape.push_back(count_in(key, extent, left));
        left /= options.observation_shape.back();
      }
    } else if (key == "dtype") {
      if (value != "float32" && value != "uint8") refuse(key, value, "\"float32\" or \"uint8\"");
      options.observation_dtype = value == "uint8" ? DType::kUInt8 : DType::kFloat32;
    } else if (key == "actions") {
      options.actions = count_in(key, value, 65536);
    } else if (key == "step_us") {
      if (!value.is_number() || value.get<double>() < 0 || value.get<double>() > 1e7) {
        refuse(key, value, "microseconds from 0 to 10 000 000");
      }
      options.step_us = value.get<double>();
    } else if (key == "random") {
      options.random_cost = flag_in(key, value);
    } else if (key == "sleep") {
      options.sleeps = flag_in(key, value);
    } else if (key == "episode_length") {
      options.episode_length = count_in(key, value, 1'000'000'000);
    } else {
      throw std::invalid_argument(
          "env.kwargs: the synthetic environment has no option '" + key +
          "'; there are observation, dtype, actions, step_us, random, sleep and episode_length");
    }
  }
  return options;
}

SyntheticEnvironments::SyntheticEnvironments(const SyntheticOptions& options, std::int64_t count,
                                             std::uint64_t seed, std::int64_t first_index)
    : options_(options), random_(stream_seed(seed, static_cast<std::uint64_t>(first_index))) {
  if (count < 1) throw std::invalid_argument("synthetic: " + std::to_string(count) + " environments");
  spec_.observation_dtype = options.observation_dtype;
  spec_.observation_shape = options.observation_shape;
  spec_.action_count = options.actions;
  steps_.resize(static_cast<std::size_t>(count));
  // Episodes end at different times, as they do elsewhere.
  for (std::int64_t i = 0; i < count; ++i) {
    steps_[static_cast<std::size_t>(i)] = (first_index + i) * 7919 % options.episode_length;
  }
}

void SyntheticEnvironments::reset(Rows observations) {
  for (std::int64_t i = 0; i < size(); ++i) observe(observations.row(i));
}

void SyntheticEnvironments::step(Rows /*actions*/, const StepRows& out) {
  double cost = 0;
  for (std::int64_t i = 0; i < size(); ++i) {
    std::int64_t& steps = steps_[static_cast<std::size_t>(i)];
    const bool over = ++steps >= options_.episode_length;
    *reinterpret_cast<float*>(out.rewards.row(i)) = 1;
    *reinterpret_cast<bool*>(out.terminated.row(i)) = over;
    *reinterpret_cast<bool*>(out.truncated.row(i)) = false;
    observe(out.observations.row(i));
    if (over) {
      std::memcpy(out.final_observations.row(i), out.observations.row(i), spec_.observation_bytes());
      steps = 0;
    }
    cost += options_.random_cost ? -std::log(1 - random_.uniform()) * options_.step_us : options_.step_us;
  }
  spend(cost);
}

void SyntheticEnvironments::observe(std::byte* row) {
  ++shade_;
  if (options_.observation_dtype == DType::kUInt8) {
    std::memset(row, shade_, spec_.observation_bytes());
    return;
  }
  const std::span<float> values(reinterpret_cast<float*>(row),
                                static_cast<std::size_t>(spec_.observation_elements()));
  std::ranges::fill(values, static_cast<float>(shade_) / 256);
}

// The whole vector's cost at once: a clock read for each environment would be a cost of its own.
void SyntheticEnvironments::spend(double us) const {
  if (us <= 0) return;
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() +
                   std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::micro>(us));
  if (options_.sleeps) {
    std::this_thread::sleep_until(end);
    return;
  }
  while (Clock::now() < end) {
  }
}

}  // namespace gristmill
