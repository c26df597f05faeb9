// JSON Schema (draft 2020-12) of a config file, for editors and for whoever generates one.

#include <limits>
#include <nlohmann/json.hpp>

#include "rollout/config.h"
#include "rollout/config_options.h"

namespace gristmill {
namespace {

using Json = nlohmann::ordered_json;

void add_bounds(const Rule& rule, Json& json) {
  if (rule.min != std::numeric_limits<std::int64_t>::min()) json["minimum"] = rule.min;
  // The largest 64-bit integer is not a bound to show: tools that read numbers as doubles round it up.
  if (rule.max != std::numeric_limits<std::int64_t>::max()) json["maximum"] = rule.max;
}

Json describe(const Rule& rule, std::int64_t value) {
  Json json = {{"type", "integer"}};
  add_bounds(rule, json);
  json["default"] = value;
  return json;
}

Json describe(const Rule& rule, double value) {
  constexpr double kUnbounded = std::numeric_limits<double>::max();
  Json json = {{"type", "number"}};
  if (rule.low != -kUnbounded) json[rule.above_low ? "exclusiveMinimum" : "minimum"] = rule.low;
  if (rule.high != kUnbounded) json[rule.below_high ? "exclusiveMaximum" : "maximum"] = rule.high;
  json["default"] = value;
  return json;
}

Json describe(const Rule&, bool value) { return {{"type", "boolean"}, {"default", value}}; }

Json describe(const Rule& rule, const std::string& value) {
  if (rule.json_object) return {{"type", {"object", "string"}}, {"default", Json::parse(value)}};
  Json json = {{"type", "string"}};
  if (!rule.choices.empty()) json["enum"] = rule.choices;
  if (!rule.pattern.empty()) json["pattern"] = "^(" + std::string(rule.pattern) + ")$";
  json["default"] = value;
  return json;
}

Json describe(const Rule& rule, const std::vector<std::int64_t>& value) {
  Json items = {{"type", "integer"}};
  add_bounds(rule, items);
  return {{"type", "array"},
          {"items", items},
          {"minItems", rule.min_items},
          {"maxItems", rule.max_items},
          {"default", value}};
}

Json object(const std::string& description) {
  return {{"type", "object"},
          {"description", description},
          {"additionalProperties", false},
          {"properties", Json::object()}};
}

}  // namespace

std::string config_schema() {
  Json root = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
               {"title", "gristmill configuration"}};
  root.update(object("A run of gristmill; every option may be left out"));
  const Config defaults;
  visit_options(defaults, [&root](const Option& option, const auto& member) {
    Json described = {{"description", option.help}};
    described.update(describe(option.rule, member));
    const std::string key(option.key);
    const auto dot = key.find('.');
    Json& properties = root["properties"];
    if (dot == std::string::npos) {
      properties[key] = described;
      return;
    }
    const std::string section = key.substr(0, dot);
    if (!properties.contains(section)) properties[section] = object("Options of " + section);
    properties[section]["properties"][key.substr(dot + 1)] = described;
  });
  return root.dump(2);
}

}  // namespace gristmill
