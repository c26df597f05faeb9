#include "learner/checkpoint_state.h"

#include <nlohmann/json.hpp>
#include <stdexcept>

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

// As Json's own conversion, which turns any number into an integer: one with a point, or too large, is none.
template <typename T>
void read(const Json& json, T& value) {
  value = json.get<T>();
}
void read(const Json& json, std::int64_t& value) {
  if (!json.is_number_integer() || (json.is_number_unsigned() && json.get<std::int64_t>() < 0)) {
    throw std::invalid_argument(json.dump() + " is not an integer of 64 bits");
  }
  value = json.get<std::int64_t>();
}
void read(const Json& json, std::map<std::string, std::int64_t>& values) {
  for (const auto& [name, value] : json.get<std::map<std::string, Json>>()) read(value, values[name]);
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
    std::int64_t format = 0;
    read(json.at("format"), format);
    if (format != kFormat) {
      fail("it has format " + std::to_string(format) + ", and this program reads format " +
           std::to_string(kFormat));
    }
    hashes = json.at("files").get<FileHashes>();
    visit_entries(state, [&](const char* name, auto& value) {
      try {
        read(json.at(name), value);
      } catch (const std::invalid_argument& error) {
        fail("\"" + std::string(name) + "\": " + error.what());
      }
    });
  } catch (const Json::exception& error) {
    fail(error.what());
  } catch (const std::invalid_argument& error) {
    fail(std::string("\"format\": ") + error.what());
  }
  return state;
}

}  // namespace gristmill
