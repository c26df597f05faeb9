#pragma once

// Walks YAML and overrides into a Config, collecting every problem. Private to the configuration.

#include <yaml-cpp/yaml.h>

#include <string>
#include <vector>

#include "rollout/config.h"

namespace gristmill {

// Used by one thread. Options that are never read keep their defaults.
class ConfigReader {
 public:
  ConfigReader();

  // Reads a whole file's text; `origin` is its name in messages.
  void read_yaml(const std::string& text, const std::string& origin);
  // Applies "dotted.key=value".
  void read_override(const std::string& text);

  const ResolvedConfig& resolved() const { return resolved_; }
  // "origin:line: key = value …: expected …", one each, in the order they were met.
  const std::vector<std::string>& problems() const { return problems_; }

 private:
  void read_mapping(const YAML::Node& node, const std::string& section, const std::string& origin);
  // where: "run.yaml:12" or "override".
  void assign(const std::string& key, const YAML::Node& value, const std::string& where);
  void unknown_key(const std::string& key, const std::string& where);
  void unknown_section(const std::string& key, const std::string& where);
  bool is_option(const std::string& key) const;
  bool is_section(const std::string& key) const;

  std::vector<std::string> keys_;  // every option's
  ResolvedConfig resolved_;
  std::vector<std::string> problems_;
};

}  // namespace gristmill
