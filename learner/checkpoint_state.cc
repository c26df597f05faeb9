#include "learner/checkpoint_state.h"

#include <nlohmann/json.hpp>

#include "learner/content_hash.h"

namespace gristmill {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kFormat = 1;
constexpr const char* kChecksum = "checksum";

// Names every entry once, for writing and for reading alike.
template <typename State, typename Visit>
void visit_entries(State& state, Visit&& visit) {
  visit("frames", state.frames);
  visit("version", state.version);
  visit("updates", state.updates);
  visit("episodes", state.episodes);
  visit("optimizer_steps", state.optimizer_steps);
  visit("progress", state.progress);
  visit("elapsed_s", state.elapsed_s);
  visit("recent_returns", state.recent_returns);
  visit("recent_lengths", state.recent_lengths);
  visit("counters", state.counters);
  visit("random_states", state.random_states);
  visit("config_hash", state.config_hash);
  visit("environment", state.environment);
}

}  // namespace

std::string checkpoint_state_text(const CheckpointState& state, const FileHashes& hashes) {
  Json json;
  json["format"] = kFormat;
  json[kChecksum] = kUnsealed;
  json["files"] = hashes;
  visit_entries(state, [&](const char* name, const auto& value) { json[name] = value; });
  std::string text = json.dump(2) + "\n";
  seal(text);
  return text;
}

CheckpointState parse_checkpoint_state(std::string_view text, const std::string& origin, FileHashes& hashes) {
  const auto fail = [&](const std::string& reason) { throw CheckpointError(origin + ": " + reason); };
  CheckpointState state;
  try {
    const Json json = Json::parse(text);
    // Before anything else is believed. With the seal intact the rest is as it was written, so what
    // can still differ is the program that wrote it.
    if (!seal_holds(text, json.at(kChecksum).get<std::string>())) {
      fail("its checksum is not that of its content: it was changed or damaged");
    }
    if (const auto format = json.at("format").get<std::int64_t>(); format != kFormat) {
      fail("it has format " + std::to_string(format) + ", and this program reads format " +
           std::to_string(kFormat));
    }
    hashes = json.at("files").get<FileHashes>();
    visit_entries(state, [&]<typename T>(const char* name, T& value) { value = json.at(name).get<T>(); });
  } catch (const Json::exception& error) {
    fail(error.what());
  }
  return state;
}

}  // namespace gristmill
