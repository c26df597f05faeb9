#include "rollout/config_value.h"

#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>

#include "rollout/nearest_name.h"

namespace gristmill {
namespace {

constexpr double kUnbounded = std::numeric_limits<double>::max();

// "" when the node is a plain scalar: neither quoted nor tagged, so YAML itself gives it a type.
std::string not_plain(const YAML::Node& node) {
  if (node.IsNull()) return "has no value";
  if (node.IsSequence()) return "is a list";
  if (node.IsMap()) return "is a mapping";
  if (node.Tag() == "!") return "is text (in quotes)";
  if (!node.Tag().empty() && node.Tag() != "?") return "has the tag " + shown(node.Tag());
  return "";
}

// 1_000_000, as people write it; an underscore stands between digits.
std::string without_underscores(std::string text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool between = i > 0 && i + 1 < text.size() &&
                         std::isdigit(static_cast<unsigned char>(text[i - 1])) &&
                         std::isdigit(static_cast<unsigned char>(text[i + 1]));
    if (text[i] != '_' || !between) out += text[i];
  }
  return out;
}

bool is_nan_or_infinity(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.erase(0, 1);
  if (!text.empty() && text[0] == '.') text.erase(0, 1);
  return text == "nan" || text == "inf" || text == "infinity";
}

std::string parse_number(const std::string& written, double& out) {
  if (is_nan_or_infinity(written)) return "is not finite";
  const std::string text = without_underscores(written);
  const char* begin = text.data() + (text.size() > 1 && text[0] == '+' && text[1] != '-' ? 1 : 0);
  double value = 0;
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) return "does not fit a double";
  if (error != std::errc() || end != text.data() + text.size()) return "is not a number";
  out = value;
  return "";
}

std::string parse_integer(const std::string& written, std::int64_t& out) {
  const std::string text = without_underscores(written);
  const char* begin = text.data() + (text.size() > 1 && text[0] == '+' && text[1] != '-' ? 1 : 0);
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), out);
  if (end == text.data() + text.size()) {
    if (error == std::errc()) return "";
    if (error == std::errc::result_out_of_range) return "does not fit 64 bits";
  }
  // 1e6 and 1.5e6 are whole numbers too, as long as a double holds them exactly.
  double number = 0;
  if (auto problem = parse_number(written, number); !problem.empty()) {
    return problem == "is not a number" ? "is not an integer" : problem;
  }
  if (number != std::floor(number)) return "is not a whole number";
  if (std::abs(number) > 9007199254740992.0) return "does not fit exactly; write its digits out";
  out = static_cast<std::int64_t>(number);
  return "";
}

std::string range_words(std::string_view low_sign, const std::string& low, std::string_view high_sign,
                        const std::string& high) {
  std::string words;
  if (!low.empty()) words += " " + std::string(low_sign) + " " + low;
  if (!low.empty() && !high.empty()) words += " and";
  if (!high.empty()) words += " " + std::string(high_sign) + " " + high;
  return words;
}

std::string integer_range(const Rule& rule) {
  using Limits = std::numeric_limits<std::int64_t>;
  return range_words(">=", rule.min == Limits::min() ? "" : std::to_string(rule.min),
                     "<=", rule.max == Limits::max() ? "" : std::to_string(rule.max));
}

std::string number_range(const Rule& rule) {
  return range_words(
      rule.above_low ? ">" : ">=", rule.low == -kUnbounded ? "" : write_value(rule, rule.low),
      rule.below_high ? "<" : "<=", rule.high == kUnbounded ? "" : write_value(rule, rule.high));
}

std::string check_integer(const Rule& rule, std::int64_t value) {
  if (value < rule.min) return "is too small";
  if (value > rule.max) return "is too large";
  return "";
}

// Strings that YAML would take for something else, or cut short, want quotes.
bool needs_quotes(const std::string& text) {
  static const std::regex kPlain("[A-Za-z_/][A-Za-z0-9_./+-]*(:[A-Za-z0-9_./+-]+)*");
  static const std::regex kTyped("true|false|null|yes|no|on|off|y|n|nan|inf|infinity", std::regex::icase);
  return !std::regex_match(text, kPlain) || std::regex_match(text, kTyped);
}

std::string quoted(const std::string& text) { return nlohmann::json(text).dump(); }

bool is_utf8(const std::string& text) {
  try {
    return nlohmann::json(text).dump(), true;
  } catch (const nlohmann::json::exception&) {
    return false;
  }
}

std::string read_json_object(const YAML::Node& node, std::string& out) {
  if (node.IsMap()) {
    try {
      out = yaml_to_json(node);
      return "";
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
  }
  if (!node.IsScalar()) return not_plain(node);
  try {
    const auto json = nlohmann::ordered_json::parse(node.Scalar());
    if (!json.is_object()) return "is not a JSON object";
    out = json.dump();
    return "";
  } catch (const nlohmann::json::exception&) {
    return "is not valid JSON";
  }
}

}  // namespace

template <>
std::string_view type_name<std::int64_t>() {
  return "integer";
}
template <>
std::string_view type_name<double>() {
  return "number";
}
template <>
std::string_view type_name<bool>() {
  return "boolean";
}
template <>
std::string_view type_name<std::string>() {
  return "string";
}
template <>
std::string_view type_name<std::vector<std::int64_t>>() {
  return "integers";
}

std::string expected(std::string_view type, const Rule& rule) {
  if (type == "integer") return "an integer" + integer_range(rule);
  if (type == "number") return "a number" + number_range(rule);
  if (type == "boolean") return "true or false";
  if (type == "integers") {
    return "a list of " + std::to_string(rule.min_items) + " to " + std::to_string(rule.max_items) +
           " integers" + integer_range(rule) + ", such as [64, 64]";
  }
  if (rule.json_object) return "a mapping such as {gravity: 9.8}, or a JSON object";
  if (!rule.choices.empty()) {
    std::string words = "one of: ";
    for (const auto choice : rule.choices) words += (words.back() == ' ' ? "" : ", ") + std::string(choice);
    return words;
  }
  return rule.pattern_words.empty() ? "text" : std::string(rule.pattern_words);
}

std::string read_value(const YAML::Node& node, const Rule& rule, std::int64_t& out) {
  if (auto problem = not_plain(node); !problem.empty()) return problem;
  std::int64_t value = 0;
  if (auto problem = parse_integer(node.Scalar(), value); !problem.empty()) return problem;
  if (auto problem = check_integer(rule, value); !problem.empty()) return problem;
  out = value;
  return "";
}

std::string read_value(const YAML::Node& node, const Rule& rule, double& out) {
  if (auto problem = not_plain(node); !problem.empty()) return problem;
  double value = 0;
  if (auto problem = parse_number(node.Scalar(), value); !problem.empty()) return problem;
  if (value < rule.low || (rule.above_low && value == rule.low)) return "is too small";
  if (value > rule.high || (rule.below_high && value == rule.high)) return "is too large";
  out = value == 0 ? 0 : value;  // no minus zero
  return "";
}

std::string read_value(const YAML::Node& node, const Rule&, bool& out) {
  if (auto problem = not_plain(node); !problem.empty()) return problem;
  const std::string& text = node.Scalar();
  const bool yes = text == "true" || text == "True" || text == "TRUE";
  const bool no = text == "false" || text == "False" || text == "FALSE";
  if (!yes && !no) return "is neither";
  out = yes;
  return "";
}

std::string read_value(const YAML::Node& node, const Rule& rule, std::string& out) {
  if (rule.json_object) return read_json_object(node, out);
  if (!node.IsScalar()) return not_plain(node);
  const std::string& text = node.Scalar();
  if (!is_utf8(text)) return "is not valid UTF-8";
  if (text.find('\0') != std::string::npos) return "holds a zero byte";
  if (!rule.choices.empty()) {
    const std::vector<std::string> choices(rule.choices.begin(), rule.choices.end());
    for (const auto& choice : choices) {
      if (text == choice) return out = text, "";
    }
    return "is unknown (did you mean " + nearest_name(text, choices) + "?)";
  }
  if (text.size() > 4096) return "is too long";
  if (!rule.pattern.empty() &&
      !std::regex_match(text, std::regex(rule.pattern.begin(), rule.pattern.end()))) {
    return text.empty() ? "is empty" : "has another form";
  }
  out = text;
  return "";
}

std::string read_value(const YAML::Node& node, const Rule& rule, std::vector<std::int64_t>& out) {
  if (!node.IsSequence()) return node.IsScalar() ? "is not a list" : not_plain(node);
  if (node.size() < rule.min_items) return "is too short";
  if (node.size() > rule.max_items) return "is too long";
  std::vector<std::int64_t> values;
  for (const auto& item : node) {
    std::int64_t value = 0;
    if (auto problem = read_value(item, rule, value); !problem.empty()) {
      return "has an item, " + shown(item) + ", that " + problem;
    }
    values.push_back(value);
  }
  out = std::move(values);
  return "";
}

std::string write_value(const Rule&, std::int64_t value) { return std::to_string(value); }

std::string write_value(const Rule&, double value) {
  std::array<char, 64> text;
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), end};
}

std::string write_value(const Rule&, bool value) { return value ? "true" : "false"; }

std::string write_value(const Rule& rule, const std::string& value) {
  if (rule.json_object && value == "{}") return value;
  return needs_quotes(value) ? quoted(value) : value;
}

std::string write_value(const Rule&, const std::vector<std::int64_t>& value) {
  std::string text = "[";
  for (const auto item : value) text += (text.size() > 1 ? ", " : "") + std::to_string(item);
  return text + "]";
}

std::string shown(std::string_view text) {
  constexpr std::size_t kLongest = 60;
  std::string out;
  for (const char c : text.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte < 32 || byte == 127 ? '?' : c;
  }
  // Not in the middle of a UTF-8 character.
  if (text.size() > kLongest) {
    while (!out.empty() && (static_cast<unsigned char>(out.back()) & 0xC0) == 0x80) out.pop_back();
    if (!out.empty() && static_cast<unsigned char>(out.back()) >= 0xC0) out.pop_back();
    out += "…";
  }
  return is_utf8(out) ? out : "(not UTF-8)";
}

std::string shown(const YAML::Node& node) {
  if (!node.IsDefined() || node.IsNull()) return "(nothing)";
  if (node.IsScalar()) {
    const std::string text = shown(node.Scalar());
    return node.Tag() == "!" || text.empty() ? '"' + text + '"' : text;
  }
  if (node.IsMap()) return "{…}";
  std::string text = "[";
  for (const auto& item : node) {
    if (text.size() > 60) return text + ", …]";
    text += (text.size() > 1 ? ", " : "") + (item.IsScalar() ? shown(item) : std::string("…"));
  }
  return text + "]";
}

}  // namespace gristmill
