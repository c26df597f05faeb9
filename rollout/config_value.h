#pragma once

// Values of options: from YAML nodes, by rule, and back to YAML text. Private to the configuration.

#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rollout/config_options.h"

namespace gristmill {

// "integer", "number", "boolean", "string", "integers".
template <class T>
std::string_view type_name();

// "an integer >= 1", "one of: appo, impala, ppo", …
std::string expected(std::string_view type, const Rule& rule);

// Reads `node` into `out`. Returns "" or what is wrong, without the key and without what was
// expected ("is a list", "is not finite", …); `out` is unchanged then.
std::string read_value(const YAML::Node& node, const Rule& rule, std::int64_t& out);
std::string read_value(const YAML::Node& node, const Rule& rule, double& out);
std::string read_value(const YAML::Node& node, const Rule& rule, bool& out);
std::string read_value(const YAML::Node& node, const Rule& rule, std::string& out);
std::string read_value(const YAML::Node& node, const Rule& rule, std::vector<std::int64_t>& out);

// As YAML on one line that read_value reads back to the same value.
std::string write_value(const Rule& rule, std::int64_t value);
std::string write_value(const Rule& rule, double value);
std::string write_value(const Rule& rule, bool value);
std::string write_value(const Rule& rule, const std::string& value);
std::string write_value(const Rule& rule, const std::vector<std::int64_t>& value);

// The node as it was written, shortened and made printable, for messages.
std::string shown(const YAML::Node& node);
std::string shown(std::string_view text);

// A YAML mapping as a JSON object's text. Throws std::invalid_argument saying what JSON cannot hold.
std::string yaml_to_json(const YAML::Node& node);

}  // namespace gristmill
