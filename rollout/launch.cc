#include "rollout/launch.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/segment.h"
#include "rollout/environment.h"

namespace gristmill {
namespace {

namespace fs = std::filesystem;

// What may stand in a file name and in a segment's name.
std::string plain(std::string text) {
  for (char& c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '_') c = '-';
  }
  return text;
}

std::string default_run_name(const Config& config) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, 32> stamp{};
  std::strftime(stamp.data(), stamp.size(), "%Y%m%d-%H%M%S", &local);
  // Of a plugin the name is enough: its path may be longer than a file's name.
  const std::string& id = config.env.id;
  const std::string shown = id.starts_with("plugin:") ? "plugin-" + id.substr(id.rfind(':') + 1) : id;
  return plain(shown) + "-s" + std::to_string(config.seed) + "-" + stamp.data();
}

void make_private_directory(const fs::path& path) {
  if (::mkdir(path.c_str(), 0700) != 0) {
    throw std::runtime_error("cannot make the run's directory " + path.string() + ": " +
                             std::strerror(errno) + "; choose another with run.dir");
  }
}

// A given name must be new; a made-up one gets a suffix until it is.
fs::path make_run_directory(Config& config) {
  const fs::path parent = config.run.dir;
  std::error_code error;
  fs::create_directories(parent, error);
  if (error) {
    throw std::runtime_error("cannot make " + parent.string() + ": " + error.message() +
                             "; choose another folder with run.dir");
  }
  if (!config.run.name.empty()) {
    if (config.run.name != plain(config.run.name)) {
      throw ConfigError("run.name: '" + config.run.name + "' may hold letters, digits, '-' and '_' only");
    }
    const fs::path path = parent / config.run.name;
    if (fs::exists(path)) {
      throw ConfigError("run.name: " + path.string() + " exists already; resume it with `gristmill resume " +
                        path.string() + "`, or choose another run.name");
    }
    make_private_directory(path);
    return path;
  }
  const std::string base = default_run_name(config);
  config.run.name = base;
  for (int n = 2; fs::exists(parent / config.run.name); ++n) config.run.name = base + "-" + std::to_string(n);
  make_private_directory(parent / config.run.name);
  return parent / config.run.name;
}

void write_file(const fs::path& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  if (!file.flush()) throw std::runtime_error("cannot write " + path.string() + ": " + std::strerror(errno));
}

}  // namespace

Launch::Launch(const ResolvedConfig& config, const LaunchOptions& options)
    : config_(config.config),
      resumed_(!options.resume_dir.empty()),
      earlier_launches_(options.earlier_launches) {
  if (options.worker_command.empty()) throw std::invalid_argument("launch: worker_command is empty");
  sweep_segments();
  if (!resumed_) {
    run_dir_ = make_run_directory(config_).string();
    write_file(fs::path(run_dir_) / "config.yaml", dump_config(config_));
  } else {
    run_dir_ = options.resume_dir;
  }
  try {
    start(options);
  } catch (...) {
    abandon();
    throw;
  }
}

void Launch::start(const LaunchOptions& options) {
  const auto rows = static_cast<int>(config_.workers.count);
  // Numbered: a process may have several runs of one name, in different folders.
  static std::atomic<int> launches{0};
  const std::string run = plain(config_.run.name) + "-" + std::to_string(++launches);
  board_ = RunBoard::create(segment_name(run, "board"), rows);
  Config for_workers = config_;
  if (earlier_launches_ > 0) {
    // Into 62 bits: a seed is a non-negative number.
    for_workers.seed = static_cast<std::int64_t>(stream_seed(static_cast<std::uint64_t>(config_.seed),
                                                             static_cast<std::uint64_t>(earlier_launches_)) >>
                                                 2);
  }
  board_->set_config(dump_config(for_workers));
  log_ = std::make_unique<RunLog>(board_->name(), run_dir_, config_.log.workers_level);
  WorkerPool::Command command = options.worker_command;
  command.insert(command.end(), {"--log-level", config_.log.workers_level});
  pool_ = std::make_unique<WorkerPool>(config_, std::move(command), *board_);
}

Launch::~Launch() = default;

void Launch::abandon() noexcept {
  if (resumed_) return;
  std::error_code ignored;
  const std::array<fs::path, 2> ours{fs::path(run_dir_) / "config.yaml", fs::path(run_dir_) / "log.txt"};
  for (const fs::directory_entry& file : fs::directory_iterator(run_dir_, ignored)) {
    if (std::find(ours.begin(), ours.end(), file.path()) == ours.end()) return;
  }
  for (const fs::path& file : ours) fs::remove(file, ignored);
  fs::remove(run_dir_, ignored);
}

WorkerPool::Command native_worker_command() {
  if (const char* given = std::getenv("GRISTMILL_WORKER"); given != nullptr && *given != '\0') return {given};
  std::vector<fs::path> tried;
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(&native_worker_command), &info) != 0 && info.dli_fname != nullptr) {
    const fs::path folder = fs::absolute(info.dli_fname).parent_path();
    tried = {folder / "bin" / "gristmill-worker", folder / "gristmill-worker",
             folder.parent_path() / "rollout" / "gristmill-worker"};
  }
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (!error) {
    tried.push_back(self.parent_path() / "gristmill-worker");
    tried.push_back(self.parent_path().parent_path() / "rollout" / "gristmill-worker");
  }
  std::string looked;
  for (const fs::path& path : tried) {
    if (::access(path.c_str(), X_OK) == 0) return {path.string()};
    looked += (looked.empty() ? "" : ", ") + path.string();
  }
  throw std::runtime_error("gristmill-worker is not to be found (looked at " + looked +
                           "); set GRISTMILL_WORKER to its path");
}

}  // namespace gristmill
