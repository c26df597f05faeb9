#include "rollout/nearest_name.h"

#include <algorithm>
#include <cctype>

namespace gristmill {
namespace {

// Beyond this, names are not misspellings any more, and the table would grow with hostile input.
constexpr std::size_t kMaxCompared = 128;

char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

std::string_view last_part(std::string_view name) {
  const auto dot = name.rfind('.');
  return dot == std::string_view::npos ? name : name.substr(dot + 1);
}

// "lr" for "learning_rate": the same first letter, and the rest in order.
bool abbreviates(std::string_view text, std::string_view name) {
  if (text.size() < 2 || name.empty() || lower(text.front()) != lower(name.front())) return false;
  std::size_t at = 0;
  for (const char c : name) at += at < text.size() && lower(text[at]) == lower(c) ? 1 : 0;
  return at == text.size();
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  a = a.substr(0, kMaxCompared);
  b = b.substr(0, kMaxCompared);
  // Rows i-2, i-1 and i of the table.
  std::vector<std::size_t> before(b.size() + 1), previous(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) previous[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      row[j] = std::min({previous[j] + 1, row[j - 1] + 1, previous[j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1])) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, previous);
    std::swap(previous, row);
  }
  return previous[b.size()];
}

std::string nearest_name(std::string_view name, const std::vector<std::string>& names) {
  const auto distance = [name](const std::string& known) {
    const std::size_t whole = edit_distance(name, known);
    // An abbreviation costs one; so does the wrong section, however different the two are.
    const std::string_view last = last_part(name), known_last = last_part(known);
    const std::size_t part = abbreviates(last, known_last) ? 1 : edit_distance(last, known_last);
    const bool same_section = name.substr(0, name.size() - last.size()) ==
                              std::string_view(known).substr(0, known.size() - known_last.size());
    return std::min(whole, part + (same_section ? 0 : 1));
  };
  return *std::min_element(names.begin(), names.end(), [&](const std::string& a, const std::string& b) {
    const auto da = distance(a), db = distance(b);
    return da != db ? da < db : edit_distance(name, a) < edit_distance(name, b);
  });
}

}  // namespace gristmill
