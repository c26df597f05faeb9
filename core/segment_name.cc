#include "core/segment_name.h"

#include <charconv>
#include <cstdio>
#include <stdexcept>

#include "core/segment.h"

namespace gristmill {
namespace {

constexpr std::string_view kPrefix = "/gristmill.";

bool acceptable(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
         c == '-';
}

void check_part(std::string_view what, const std::string& text) {
  if (text.empty()) throw std::invalid_argument("a segment's " + std::string(what) + " name is empty");
  for (const char c : text) {
    if (!acceptable(c)) {
      throw std::invalid_argument("a segment's " + std::string(what) + " name, '" + text +
                                  "', holds a character other than A-Z a-z 0-9 . _ -");
    }
  }
}

// Takes a number and its separator off the front.
template <class Integer>
bool take(std::string_view* text, int base, char separator, Integer* value) {
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), *value, base);
  if (error != std::errc() || end == text->data() + text->size() || *end != separator) return false;
  text->remove_prefix(static_cast<std::size_t>(end - text->data()) + 1);
  return true;
}

}  // namespace

std::string segment_name(const std::string& run, const std::string& part) {
  check_part("run", run);
  check_part("part", part);
  const ProcessIdentity self = ProcessIdentity::self();
  char owner[80];
  std::snprintf(owner, sizeof owner, "%lld-%llu-%llx.", static_cast<long long>(self.pid),
                static_cast<unsigned long long>(self.start_time),
                static_cast<unsigned long long>(identity_namespace()));
  std::string name = std::string(kPrefix) + owner + run + "." + part;
  if (name.size() > kMaxSegmentName) {
    throw std::invalid_argument("the segment name '" + name + "' has " + std::to_string(name.size()) +
                                " bytes: expected at most " + std::to_string(kMaxSegmentName) +
                                "; choose a shorter run name");
  }
  return name;
}

std::optional<SegmentName> SegmentName::parse(std::string_view name) {
  if (name.size() > kMaxSegmentName || !name.starts_with(kPrefix)) return std::nullopt;
  for (const char c : name.substr(1)) {
    if (!acceptable(c)) return std::nullopt;
  }
  name.remove_prefix(kPrefix.size());
  SegmentName parsed;
  if (!take(&name, 10, '-', &parsed.owner.pid) || !take(&name, 10, '-', &parsed.owner.start_time) ||
      !take(&name, 16, '.', &parsed.name_space)) {
    return std::nullopt;
  }
  if (parsed.owner.pid <= 0 || name.find('.') == std::string_view::npos) return std::nullopt;
  return parsed;
}

SegmentName SegmentName::parse_or_throw(std::string_view name) {
  if (const auto parsed = parse(name)) return *parsed;
  throw std::invalid_argument("'" + std::string(name.substr(0, 300)) +
                              "' is not a segment's name: expected one of segment_name(), of at most " +
                              std::to_string(kMaxSegmentName) + " bytes from A-Z a-z 0-9 . _ -");
}

}  // namespace gristmill
