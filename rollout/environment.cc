#include "rollout/environment.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "rollout/random.h"

namespace gristmill {

namespace {

using Json = nlohmann::json;

[[noreturn]] void refuse(const std::string& what) {
  throw std::invalid_argument("environment description: " + what);
}

// JSON has no infinity: an unbounded side is null.
Json bounds_to_json(const std::vector<float>& bounds) {
  Json out = Json::array();
  for (const float bound : bounds) {
    if (std::isnan(bound)) refuse("an action bound is NaN; expected a number or an infinity");
    out.push_back(std::isinf(bound) ? Json(nullptr) : Json(bound));
  }
  return out;
}

std::vector<float> bounds_from_json(const Json& action, const char* key, float unbounded) {
  const auto found = action.find(key);
  if (found == action.end() || !found->is_array() || found->empty()) {
    refuse(std::string("action.") + key + " must be a list of at least one number or null");
  }
  std::vector<float> bounds;
  for (const Json& bound : *found) {
    if (!bound.is_null() && !bound.is_number()) {
      refuse(std::string("action.") + key + " holds " + bound.dump() + "; expected a number or null");
    }
    bounds.push_back(bound.is_null() ? unbounded : bound.get<float>());
  }
  return bounds;
}

std::vector<std::int64_t> shape_from_json(const Json& observation) {
  const auto found = observation.find("shape");
  if (found == observation.end() || !found->is_array()) {
    refuse("observation.shape must be a list of positive integers");
  }
  std::vector<std::int64_t> shape;
  std::int64_t elements = 1;
  for (const Json& extent : *found) {
    // The limit keeps every later product of sizes far from overflow.
    constexpr std::int64_t kMostElements = std::int64_t{1} << 40;
    if (!extent.is_number_integer() || extent.get<std::int64_t>() < 1 ||
        extent.get<std::int64_t>() > kMostElements / elements) {
      refuse("observation.shape is " + found->dump() + "; expected positive integers, 2^40 elements at most");
    }
    shape.push_back(extent.get<std::int64_t>());
    elements *= shape.back();
  }
  return shape;
}

const Json& object(const Json& parent, const char* key) {
  const auto found = parent.find(key);
  if (found == parent.end() || !found->is_object()) {
    refuse(std::string("\"") + key + "\" is missing or not an object");
  }
  return *found;
}

}  // namespace

std::int64_t EnvironmentSpec::observation_elements() const {
  std::int64_t elements = 1;
  for (const std::int64_t extent : observation_shape) elements *= extent;
  return elements;
}

std::size_t EnvironmentSpec::observation_bytes() const {
  return static_cast<std::size_t>(observation_elements()) * dtype_size(observation_dtype);
}

std::size_t EnvironmentSpec::action_bytes() const {
  return discrete() ? sizeof(std::int32_t) : sizeof(float) * static_cast<std::size_t>(action_dims);
}

std::string EnvironmentSpec::to_json() const {
  Json action;
  if (discrete()) {
    action["count"] = action_count;
  } else {
    action["low"] = bounds_to_json(action_low);
    action["high"] = bounds_to_json(action_high);
  }
  return Json{{"observation", {{"dtype", dtype_name(observation_dtype)}, {"shape", observation_shape}}},
              {"action", action}}
      .dump();
}

EnvironmentSpec EnvironmentSpec::from_json(const std::string& json) {
  const Json root = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object()) refuse("not a JSON object: " + json.substr(0, 100));
  EnvironmentSpec spec;

  const Json& observation = object(root, "observation");
  const std::string dtype = observation.value("dtype", Json()).is_string() ? observation["dtype"] : "";
  if (dtype != "float32" && dtype != "uint8") {
    refuse("observation.dtype is \"" + dtype + "\"; expected \"float32\" or \"uint8\"");
  }
  spec.observation_dtype = dtype_from_name(dtype);
  spec.observation_shape = shape_from_json(observation);

  const Json& action = object(root, "action");
  if (const auto count = action.find("count"); count != action.end()) {
    if (!count->is_number_integer() || count->get<std::int64_t>() < 1 ||
        count->get<std::int64_t>() > std::numeric_limits<std::int32_t>::max()) {
      refuse("action.count is " + count->dump() + "; expected an integer from 1 to 2^31 - 1");
    }
    spec.action_count = count->get<std::int64_t>();
    return spec;
  }
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  spec.action_low = bounds_from_json(action, "low", -kInfinity);
  spec.action_high = bounds_from_json(action, "high", kInfinity);
  if (spec.action_low.size() != spec.action_high.size())
    refuse("action.low and action.high differ in length");
  for (std::size_t i = 0; i < spec.action_low.size(); ++i) {
    if (spec.action_low[i] > spec.action_high[i]) {
      refuse("action.low[" + std::to_string(i) + "] is above action.high[" + std::to_string(i) + "]");
    }
  }
  spec.action_dims = static_cast<std::int64_t>(spec.action_low.size());
  return spec;
}

std::uint64_t stream_seed(std::uint64_t seed, std::uint64_t stream) {
  // Both go through the mixer before they meet: seed s, stream t + 1 and seed s + 1, stream t have
  // nothing in common.
  return splitmix64(splitmix64(seed) ^ (stream * 0x9e3779b97f4a7c15U));
}

}  // namespace gristmill
