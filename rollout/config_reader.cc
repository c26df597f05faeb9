#include "rollout/config_reader.h"

#include <yaml-cpp/eventhandler.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "rollout/config_options.h"
#include "rollout/config_value.h"
#include "rollout/nearest_name.h"

namespace gristmill {
namespace {

std::string at(const std::string& origin, int line) { return origin + ":" + std::to_string(line); }
std::string at(const std::string& origin, const YAML::Mark& mark) {
  return mark.is_null() ? origin : at(origin, mark.line + 1);
}

// YAML forbids tabs as indentation, and yaml-cpp's own message for them misleads. 0: none.
int line_with_tab_indentation(const std::string& text) {
  int line = 1;
  bool at_indentation = true;
  for (const char c : text) {
    if (c == '\n') {
      ++line;
      at_indentation = true;
    } else if (c == '\t' && at_indentation) {
      return line;
    } else if (c != ' ') {
      at_indentation = false;
    }
  }
  return 0;
}

std::string trimmed(const std::string& text) {
  const auto begin = text.find_first_not_of(" \t");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// Where documents of a YAML stream begin. Looked at before the text is loaded, because yaml-cpp's LoadAll
// does not come to an end where something follows a document that belongs to none.
class DocumentStarts : public YAML::EventHandler {
 public:
  // Those of the first two.
  explicit DocumentStarts(const std::string& text) {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    while (starts_.size() < 2 && parser.HandleNextDocument(*this)) {
    }
  }
  const std::vector<YAML::Mark>& marks() const { return starts_; }

 private:
  void OnDocumentStart(const YAML::Mark& mark) override { starts_.push_back(mark); }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
  }
  void OnMapEnd() override {}

  std::vector<YAML::Mark> starts_;
};

// Text is taken as it stands: "run.name=a: b" is not a mapping.
YAML::Node override_node(const std::string& text, std::string_view type) {
  if (type != "string") return YAML::Load(text);
  YAML::Node node(text);
  node.SetTag("!");
  return node;
}

}  // namespace

ConfigReader::ConfigReader() {
  visit_options(resolved_.config, [this](const Option& option, auto&) {
    keys_.emplace_back(option.key);
    resolved_.sources[keys_.back()] = "default";
  });
}

bool ConfigReader::is_option(const std::string& key) const {
  return std::find(keys_.begin(), keys_.end(), key) != keys_.end();
}

bool ConfigReader::is_section(const std::string& key) const {
  return std::any_of(keys_.begin(), keys_.end(),
                     [&](const std::string& known) { return known.starts_with(key + "."); });
}

void ConfigReader::unknown_key(const std::string& key, const std::string& where) {
  problems_.push_back(where + ": " + shown(key) + " is not an option; the nearest is " +
                      nearest_name(key, keys_));
}

void ConfigReader::unknown_section(const std::string& key, const std::string& where) {
  std::vector<std::string> sections;
  for (const auto& known : keys_) {
    const auto dot = known.find('.');
    if (dot != std::string::npos) sections.push_back(known.substr(0, dot));
  }
  problems_.push_back(where + ": " + shown(key) + " is not a section; the nearest is " +
                      nearest_name(key, sections));
}

void ConfigReader::read_yaml(const std::string& text, const std::string& origin) {
  if (const int line = line_with_tab_indentation(text)) {
    problems_.push_back(at(origin, line) + ": a tab in the indentation; expected spaces");
    return;
  }
  if (text.find('\0') != std::string::npos) {
    problems_.push_back(origin + ": holds a zero byte; expected YAML text");
    return;
  }
  try {
    if (const DocumentStarts starts(text); starts.marks().size() > 1) {
      problems_.push_back(at(origin, starts.marks()[1]) +
                          ": a second YAML document, or what belongs to none; expected one");
    } else if (const YAML::Node root = YAML::Load(text); !root.IsNull()) {
      if (root.IsMap()) {
        read_mapping(root, "", origin);
      } else {
        problems_.push_back(at(origin, root.Mark()) + ": " + shown(root) +
                            ": expected a mapping of options, such as \"seed: 0\"");
      }
    }
  } catch (const YAML::Exception& error) {
    problems_.push_back(at(origin, error.mark) + ": not valid YAML: " + error.msg);
  }
}

void ConfigReader::read_mapping(const YAML::Node& node, const std::string& section,
                                const std::string& origin) {
  // yaml-cpp keeps every pair, also of a key that comes twice; only iteration shows it.
  std::map<std::string, std::string> seen;
  for (const auto& pair : node) {
    const YAML::Node &key_node = pair.first, &value = pair.second;
    const std::string where = at(origin, key_node.Mark());
    if (!key_node.IsScalar()) {
      problems_.push_back(where + ": " + shown(key_node) + " as a key; expected an option's name");
      continue;
    }
    const std::string& name = key_node.Scalar();
    const std::string key = section.empty() ? name : section + "." + name;
    if (const auto [first, inserted] = seen.try_emplace(key, where); !inserted) {
      problems_.push_back(where + ": " + shown(key) + " = " + shown(value) + " comes twice, first at " +
                          first->second + "; expected each key once");
    } else if (name.find('.') != std::string::npos && is_option(key)) {
      problems_.push_back(where + ": " + key + " is written with a dot; expected " +
                          key.substr(key.rfind('.') + 1) + " indented under " +
                          key.substr(0, key.rfind('.')) + ": (dots are for overrides)");
    } else if (section.empty() && is_section(key)) {
      if (value.IsMap()) {
        read_mapping(value, key, origin);
      } else {
        problems_.push_back(where + ": " + key + " = " + shown(value) + ": expected a mapping of " + key +
                            "'s options, such as " + nearest_name(key + ".", keys_));
      }
    } else if (is_option(key)) {
      assign(key, value, where);
    } else if (section.empty() && value.IsMap()) {
      unknown_section(key, where);
    } else {
      unknown_key(key, where);
    }
  }
}

void ConfigReader::read_override(const std::string& text) {
  const auto equals = text.find('=');
  if (equals == std::string::npos) {
    problems_.push_back("override: " + shown(text) +
                        ": expected key=value, such as learner.learning_rate=3e-4");
    return;
  }
  const std::string key = trimmed(text.substr(0, equals));
  const std::string value = trimmed(text.substr(equals + 1));
  if (is_section(key)) {
    problems_.push_back("override: " + key + " = " + shown(value) + ": " + key +
                        " is a section; expected one of its options, such as " +
                        nearest_name(key + ".", keys_));
    return;
  }
  if (!is_option(key)) return unknown_key(key, "override");
  visit_options(resolved_.config, [&](const Option& option, auto& member) {
    if (option.key != key) return;
    const auto type = type_name<std::remove_reference_t<decltype(member)>>();
    try {
      // A mapping for a JSON option is YAML; any other string is taken as it stands.
      assign(key, override_node(value, option.rule.json_object ? "mapping" : type), "override");
    } catch (const YAML::Exception& error) {
      problems_.push_back("override: " + key + " = " + shown(value) + " is not valid YAML (" + error.msg +
                          "): expected " + expected(type, option.rule));
    }
  });
}

void ConfigReader::assign(const std::string& key, const YAML::Node& value, const std::string& where) {
  visit_options(resolved_.config, [&](const Option& option, auto& member) {
    if (option.key != key) return;
    const auto type = type_name<std::remove_reference_t<decltype(member)>>();
    const std::string problem = read_value(value, option.rule, member);
    if (problem.empty()) {
      resolved_.sources[key] = where;
    } else {
      problems_.push_back(where + ": " + key + " = " + shown(value) + " " + problem + ": expected " +
                          expected(type, option.rule));
    }
  });
}

}  // namespace gristmill
