// A Config back to YAML, and as a list for the command line and Python.

#include <string>

#include "rollout/config.h"
#include "rollout/config_options.h"
#include "rollout/config_value.h"

namespace gristmill {

std::string dump_config(const Config& config, bool with_help) {
  std::string text, section;
  visit_options(config, [&](const Option& option, const auto& member) {
    const std::string key(option.key);
    const auto dot = key.find('.');
    const std::string this_section = dot == std::string::npos ? "" : key.substr(0, dot);
    if (this_section != section) {
      if (with_help) text += '\n';
      text += this_section + ":\n";
      section = this_section;
    }
    const std::string indent = section.empty() ? "" : "  ";
    if (with_help) {
      text += indent + "# " + std::string(option.help) + " (" +
              expected(type_name<std::remove_cvref_t<decltype(member)>>(), option.rule) + ")\n";
    }
    const std::string name = dot == std::string::npos ? key : key.substr(dot + 1);
    text += indent + name + ": " + write_value(option.rule, member) + "\n";
  });
  return text;
}

std::vector<OptionInfo> config_options(const Config& config) {
  std::vector<OptionInfo> options;
  visit_options(config, [&](const Option& option, const auto& member) {
    using Member = std::remove_cvref_t<decltype(member)>;
    OptionInfo info;
    info.key = option.key;
    info.type = option.rule.json_object ? "object" : type_name<Member>();
    info.value = write_value(option.rule, member);
    if constexpr (std::is_same_v<Member, std::string>) {
      if (option.rule.json_object) info.value = member;
    }
    info.expected = expected(type_name<Member>(), option.rule);
    info.help = option.help;
    options.push_back(std::move(info));
  });
  return options;
}

}  // namespace gristmill
