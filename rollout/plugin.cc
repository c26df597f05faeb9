#include "rollout/plugin.h"

#include <dlfcn.h>

#include <filesystem>

namespace gristmill {
namespace {

struct PluginId {
  std::string path, name;
};

PluginId parse(const std::string& id) {
  const std::string rest = id.substr(std::string(kPluginPrefix).size());
  const auto colon = rest.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == rest.size()) {
    throw std::invalid_argument("env.id \"" + id +
                                "\": expected plugin:<path of a shared library>:<environment's name>");
  }
  return {std::filesystem::absolute(rest.substr(0, colon)).string(), rest.substr(colon + 1)};
}

const Plugin& load(const std::string& path) {
  ::dlerror();
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = ::dlerror();
    throw std::invalid_argument("the plugin " + path +
                                " cannot be loaded: " + (why ? why : "no reason given"));
  }
  using Entry = const Plugin* (*)();
  const auto entry = reinterpret_cast<Entry>(::dlsym(library, "gristmill_plugin"));
  const Plugin* const plugin = entry == nullptr ? nullptr : entry();
  if (plugin == nullptr || plugin->magic != kPluginMagic) {
    throw std::invalid_argument(path +
                                " is no gristmill plugin: it does not export gristmill_plugin(); add "
                                "GRISTMILL_PLUGIN(…) of rollout/plugin.h to one of its sources");
  }
  const Plugin ours;
  if (plugin->abi != ours.abi) {
    throw std::invalid_argument("the plugin " + path + " was built for plugin ABI " +
                                std::to_string(plugin->abi) + ", this gristmill has " +
                                std::to_string(ours.abi) + ": build it anew against this version's headers");
  }
  if (plugin->cxx11_abi != ours.cxx11_abi || plugin->type_bytes != ours.type_bytes) {
    throw std::invalid_argument("the plugin " + path +
                                " was built by a compiler or with a standard library whose types differ from "
                                "this gristmill's (_GLIBCXX_USE_CXX11_ABI is " +
                                std::to_string(ours.cxx11_abi) + " here): build both alike");
  }
  return *plugin;
}

}  // namespace

std::unique_ptr<VectorEnvironment> make_plugin_environments(const std::string& id, const std::string& kwargs,
                                                            std::int64_t count, std::uint64_t seed,
                                                            std::int64_t first_index) {
  const auto [path, name] = parse(id);
  const Plugin& plugin = load(path);
  std::string known;
  for (std::int64_t i = 0; i < plugin.count; ++i) {
    const PluginEnvironment& environment = plugin.environments[i];
    if (name == environment.name) return environment.make(kwargs, count, seed, first_index);
    known.append(known.empty() ? "" : ", ").append(environment.name);
  }
  throw std::invalid_argument("the plugin " + path + " has no environment \"" + name + "\"; it has " + known);
}

}  // namespace gristmill
