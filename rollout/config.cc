// Files and texts to a resolved configuration. What each value may be is in config_options.h, how it
// is read in config_value.cc, how keys are walked in config_reader.cc.

#include "rollout/config.h"

#include <filesystem>
#include <fstream>

#include "rollout/config_check.h"
#include "rollout/config_reader.h"
#include "rollout/nearest_name.h"

namespace gristmill {
namespace {

constexpr std::size_t kLargestFile = 1 << 20;

// ", did you mean …?" when the folder has a file of a similar name.
std::string similar_file(const std::filesystem::path& path) {
  std::error_code ignored;
  const auto folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  std::vector<std::string> names;
  for (std::filesystem::directory_iterator it(folder, ignored), end; !ignored && it != end;
       it.increment(ignored)) {
    const auto extension = it->path().extension();
    if (extension == ".yaml" || extension == ".yml") names.push_back(it->path().filename().string());
  }
  if (names.empty()) return "";
  const std::string wish = path.filename().string();
  const std::string name = nearest_name(wish, names);
  if (edit_distance(wish, name) > std::max<std::size_t>(4, wish.size() / 3)) return "";
  return "; did you mean " + (path.has_parent_path() ? (path.parent_path() / name).string() : name) + "?";
}

std::string read_file(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) {
    throw ConfigError(path + ": no such file; expected a YAML configuration" + similar_file(path));
  }
  if (std::filesystem::is_directory(status)) {
    throw ConfigError(path + ": is a folder; expected a YAML configuration file");
  }
  std::ifstream file(path, std::ios::binary);
  std::string text;
  char block[4096];
  while (file.read(block, sizeof block) || file.gcount() > 0) {
    text.append(block, static_cast<std::size_t>(file.gcount()));
    if (text.size() > kLargestFile)
      throw ConfigError(path + ": is larger than 1 MiB; expected a YAML configuration");
  }
  if (!file.eof()) throw ConfigError(path + ": cannot be read (is it yours to read?)");
  return text;
}

void throw_if_any(const std::vector<std::string>& problems) {
  if (problems.empty()) return;
  constexpr std::size_t kShown = 10;
  std::string text;
  for (std::size_t i = 0; i < std::min(problems.size(), kShown); ++i) text += (i ? "\n" : "") + problems[i];
  if (problems.size() > kShown) text += "\nand " + std::to_string(problems.size() - kShown) + " more";
  throw ConfigError(text);
}

}  // namespace

ResolvedConfig load_config(const std::string& path, const std::vector<std::string>& overrides) {
  return parse_config(read_file(path), path, overrides);
}

ResolvedConfig parse_config(const std::string& yaml, const std::string& origin,
                            const std::vector<std::string>& overrides) {
  ConfigReader reader;
  reader.read_yaml(yaml, origin);
  for (const auto& override : overrides) reader.read_override(override);
  throw_if_any(reader.problems());
  throw_if_any(contradictions(reader.resolved()));
  return reader.resolved();
}

Config check_override(const std::string& override) {
  ConfigReader reader;
  reader.read_override(override);
  throw_if_any(reader.problems());
  return reader.resolved().config;
}

}  // namespace gristmill
