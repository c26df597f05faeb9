#include "learner/checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <span>
#include <string_view>
#include <system_error>

#include "learner/checkpoint_state.h"
#include "learner/content_hash.h"
#include "learner/durable_file.h"
#include "learner/safetensors.h"
#include "rollout/finite.h"

namespace gristmill {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kModel = "model.safetensors";
constexpr std::string_view kOptimizer = "optimizer.safetensors";
constexpr std::string_view kState = "state.json";
// What is being written or removed; never taken for a checkpoint.
constexpr std::string_view kAside = ".aside-";
constexpr std::string_view kFrames = "-frames-";

fs::path checkpoints_of(const fs::path& run_dir) { return run_dir / "checkpoints"; }

// The sequence number in "000012-frames-000000160000"; nullopt for any other name. Numbers only
// grow, so that the newest is the newest even where a run went back to an earlier checkpoint.
std::optional<std::int64_t> sequence_of(const std::string& name) {
  const std::size_t dash = name.find(kFrames);
  if (dash == std::string::npos || dash == 0 || dash > 12) return std::nullopt;
  const std::string_view digits = std::string_view(name).substr(0, dash);
  const std::string_view frames = std::string_view(name).substr(dash + kFrames.size());
  const auto all_digits = [](std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  };
  if (!all_digits(digits) || !all_digits(frames)) return std::nullopt;
  return std::stoll(std::string(digits));
}

std::string name_of(std::int64_t sequence, std::int64_t frames) {
  char name[64];
  std::snprintf(name, sizeof name, "%06lld%s%012lld", static_cast<long long>(sequence), kFrames.data(),
                static_cast<long long>(frames));
  return name;
}

std::vector<std::byte> joined(const std::vector<float>& first, const std::vector<float>& second) {
  std::vector<std::byte> bytes((first.size() + second.size()) * sizeof(float));
  std::memcpy(bytes.data(), first.data(), first.size() * sizeof(float));
  std::memcpy(bytes.data() + first.size() * sizeof(float), second.data(), second.size() * sizeof(float));
  return bytes;
}

FieldSpecs optimizer_layout(const FieldSpecs& layout) {
  FieldSpecs result;
  for (const std::string_view moment : {"first_moment.", "second_moment."}) {
    for (FieldSpec spec : layout) {
      spec.name = std::string(moment) + spec.name;
      result.push_back(std::move(spec));
    }
  }
  return result;
}

// The name of the parameter that element `index` of the flat buffer belongs to, and where in it.
std::string element_name(const FieldSpecs& layout, std::int64_t index) {
  for (const FieldSpec& spec : layout) {
    if (index < spec.elements()) return spec.name + "[" + std::to_string(index) + "]";
    index -= spec.elements();
  }
  return "[" + std::to_string(index) + "]";
}

// Why a state cannot be a checkpoint's; empty when it can.
std::string objection(const CheckpointState& state) {
  std::int64_t count = 0;
  for (const FieldSpec& spec : state.layout) {
    if (spec.dtype != DType::kFloat32) return "parameter " + spec.name + " is not float32";
    count += spec.elements();
  }
  const auto check = [&](const char* name, const std::vector<float>& values, bool by_layout) -> std::string {
    if (by_layout && static_cast<std::int64_t>(values.size()) != count) {
      return std::string(name) + " has " + std::to_string(values.size()) + " elements, and the layout " +
             std::to_string(count);
    }
    const std::int64_t at = first_not_finite(values);
    if (at < 0) return "";
    return std::string(name) + " " +
           (by_layout ? element_name(state.layout, at) : "[" + std::to_string(at) + "]") + " is " +
           std::to_string(values[static_cast<std::size_t>(at)]);
  };
  for (const std::string& found :
       {check("parameters", state.parameters, true), check("first_moment", state.first_moment, true),
        check("second_moment", state.second_moment, true),
        check("recent_returns", state.recent_returns, false),
        check("recent_lengths", state.recent_lengths, false)}) {
    if (!found.empty()) return found;
  }
  if (!std::isfinite(state.progress)) return "progress is " + std::to_string(state.progress);
  if (!std::isfinite(state.elapsed_s)) return "elapsed_s is " + std::to_string(state.elapsed_s);
  if (state.frames < 0) return "frames is " + std::to_string(state.frames);
  return "";
}

// Neither of these two stops a save where something cannot be removed: the new checkpoint matters more.

// Out of sight first, in one rename, then gone: what a crash leaves is never half a checkpoint.
void remove_checkpoint(const fs::path& path) {
  const fs::path aside = path.parent_path() / (std::string(kAside) + path.filename().string());
  std::error_code failed;
  fs::rename(path, aside, failed);
  if (!failed) fs::remove_all(aside, failed);
}

void remove_leftovers(const fs::path& directory) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    if (entry.path().filename().string().starts_with(kAside)) fs::remove_all(entry.path(), ignored);
  }
}

void write_files(const fs::path& directory, const CheckpointState& state) {
  const std::vector<std::byte> model =
      to_safetensors(state.layout, std::as_bytes(std::span(state.parameters)), {{"format", "pt"}});
  const std::vector<std::byte> optimizer =
      to_safetensors(optimizer_layout(state.layout), joined(state.first_moment, state.second_moment));
  const std::string text =
      checkpoint_state_text(state, {{std::string(kModel), hash_text(content_hash(model))},
                                    {std::string(kOptimizer), hash_text(content_hash(optimizer))}});
  write_file_durably(directory / kModel, model);
  write_file_durably(directory / kOptimizer, optimizer);
  write_file_durably(directory / kState, std::as_bytes(std::span(text)));
  sync_directory(directory);
}

std::vector<float> floats(std::span<const std::byte> bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

Safetensors load_tensors(const fs::path& path, const FileHashes& hashes) {
  const std::vector<std::byte> file = read_file(path);
  const auto expected = hashes.find(path.filename().string());
  if (expected == hashes.end()) throw CheckpointError("state.json has no hash of " + path.string());
  Safetensors tensors = parse_safetensors(file, path.string());
  if (const std::string hash = hash_text(content_hash(file)); hash != expected->second) {
    throw CheckpointError(path.string() + " is of another checkpoint: its hash is " + hash +
                          ", and state.json expects " + expected->second);
  }
  return tensors;
}

template <typename Map>
const typename Map::mapped_type& entry_of(const Map& entries, const char* what, const std::string& name) {
  const auto found = entries.find(name);
  if (found != entries.end()) return found->second;
  throw CheckpointError(std::string("the checkpoint has no ") + what + " \"" + name +
                        "\": it was written by another program");
}

}  // namespace

fs::path save_checkpoint(const fs::path& run_dir, const CheckpointState& state, std::int64_t keep) {
  const fs::path directory = checkpoints_of(run_dir);
  const auto refuse = [&](const std::string& reason) {
    throw CheckpointError("no checkpoint was written to " + directory.string() + ": " + reason +
                          "; the earlier ones are as they were");
  };
  if (const std::string found = objection(state); !found.empty()) refuse(found);
  fs::path aside;
  try {
    fs::create_directories(directory);
    remove_leftovers(directory);
    const std::vector<fs::path> existing = list_checkpoints(run_dir);
    const std::int64_t sequence =
        existing.empty() ? 1 : *sequence_of(existing.back().filename().string()) + 1;
    const fs::path final_path = directory / name_of(sequence, state.frames);
    aside = directory / (std::string(kAside) + final_path.filename().string());
    fs::create_directory(aside);
    write_files(aside, state);
    fs::rename(aside, final_path);
    aside.clear();
    sync_directory(directory);
    const auto surplus = static_cast<std::int64_t>(existing.size()) + 1 - std::max<std::int64_t>(keep, 1);
    for (std::int64_t i = 0; i < surplus; ++i) remove_checkpoint(existing[static_cast<std::size_t>(i)]);
    return final_path;
  } catch (const std::exception& error) {
    std::error_code ignored;
    if (!aside.empty()) fs::remove_all(aside, ignored);
    refuse(error.what());
  }
  return {};
}

CheckpointState load_checkpoint(const fs::path& directory) {
  try {
    const fs::path path = directory / kState;
    const std::vector<std::byte> bytes = read_file(path);
    FileHashes hashes;
    CheckpointState state = parse_checkpoint_state(
        {reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path.string(), hashes);

    Safetensors model = load_tensors(directory / kModel, hashes);
    const Safetensors optimizer = load_tensors(directory / kOptimizer, hashes);
    state.layout = std::move(model.tensors);
    state.parameters = floats(model.data);
    if (optimizer.tensors != optimizer_layout(state.layout)) {
      throw CheckpointError((directory / kOptimizer).string() + " has other parameters than " +
                            std::string(kModel));
    }
    const std::size_t half = optimizer.data.size() / 2;
    state.first_moment = floats(std::span(optimizer.data).first(half));
    state.second_moment = floats(std::span(optimizer.data).subspan(half));
    if (const std::string found = objection(state); !found.empty()) throw CheckpointError(found);
    return state;
  } catch (const std::exception& error) {
    throw CheckpointError("the checkpoint " + directory.string() + " cannot be used: " + error.what());
  }
}

std::int64_t counter_of(const CheckpointState& state, const std::string& name) {
  return entry_of(state.counters, "counter", name);
}

const std::string& random_state_of(const CheckpointState& state, const std::string& name) {
  return entry_of(state.random_states, "random state", name);
}

std::vector<fs::path> list_checkpoints(const fs::path& run_dir) {
  std::vector<std::pair<std::int64_t, fs::path>> found;
  std::error_code missing;
  for (const fs::directory_entry& entry : fs::directory_iterator(checkpoints_of(run_dir), missing)) {
    if (const auto sequence = sequence_of(entry.path().filename().string())) {
      found.emplace_back(*sequence, entry.path());
    }
  }
  std::sort(found.begin(), found.end());
  std::vector<fs::path> paths;
  for (auto& [sequence, path] : found) paths.push_back(std::move(path));
  return paths;
}

std::optional<fs::path> latest_checkpoint(const fs::path& run_dir) {
  const std::vector<fs::path> paths = list_checkpoints(run_dir);
  if (paths.empty()) return std::nullopt;
  std::string reason;
  try {
    load_checkpoint(paths.back());
    return paths.back();
  } catch (const CheckpointError& error) {
    reason = error.what();
  }
  for (auto path = paths.rbegin() + 1; path != paths.rend(); ++path) {
    try {
      load_checkpoint(*path);
    } catch (const CheckpointError&) {
      continue;
    }
    throw CheckpointError(reason + "; resume from the one before instead: " + path->string(), *path);
  }
  throw CheckpointError(reason + "; no earlier checkpoint of this run is whole");
}

}  // namespace gristmill
