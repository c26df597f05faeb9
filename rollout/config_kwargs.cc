// env.kwargs: a YAML mapping as JSON text, with YAML's own types.

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "rollout/config_value.h"

namespace gristmill {
namespace {

using Json = nlohmann::ordered_json;

// An alias may make a small file huge, or endless.
struct Budget {
  int nodes = 10'000;
  int depth = 0;
};

Json scalar(const YAML::Node& node) {
  const std::string& text = node.Scalar();
  if (node.Tag() == "!") return text;
  if (!node.Tag().empty() && node.Tag() != "?") {
    throw std::invalid_argument("has a value with the tag " + shown(node.Tag()));
  }
  Rule any;
  if (bool value = false; read_value(node, any, value).empty()) return value;
  // Only what is written as an integer is one: 1e6 and 2.0 are numbers with a point.
  if (text.find_first_of(".eE") == std::string::npos) {
    if (std::int64_t value = 0; read_value(node, any, value).empty()) return value;
  }
  double value = 0;
  const std::string problem = read_value(node, any, value);
  if (problem.empty()) return value;
  if (problem != "is not a number") {
    throw std::invalid_argument("has a value, " + shown(text) + ", that " + problem);
  }
  return text;
}

Json convert(const YAML::Node& node, Budget& budget) {
  if (--budget.nodes < 0) throw std::invalid_argument("is too large");
  if (budget.depth > 32) throw std::invalid_argument("is nested too deeply");
  ++budget.depth;
  Json json;
  if (node.IsMap()) {
    json = Json::object();
    for (const auto& pair : node) {
      const YAML::Node &key = pair.first, &value = pair.second;
      if (!key.IsScalar()) throw std::invalid_argument("has a key that is not text");
      if (json.contains(key.Scalar())) {
        throw std::invalid_argument("has the key " + shown(key.Scalar()) + " twice");
      }
      json[key.Scalar()] = convert(value, budget);
    }
  } else if (node.IsSequence()) {
    json = Json::array();
    for (const auto& item : node) json.push_back(convert(item, budget));
  } else if (node.IsScalar()) {
    json = scalar(node);
  }
  --budget.depth;
  return json;
}

}  // namespace

std::string yaml_to_json(const YAML::Node& node) {
  Budget budget;
  const Json json = convert(node, budget);
  try {
    return json.dump();
  } catch (const nlohmann::json::exception&) {
    throw std::invalid_argument("is not valid UTF-8");
  }
}

}  // namespace gristmill
