#pragma once

// Environments in a shared library of your own, named `env.id: plugin:path/to/library.so:Name`.
//
//   #include "rollout/plugin.h"
//   class Catch { … };  // as in rollout/template_environment.h
//   GRISTMILL_PLUGIN({"Catch", &gristmill::make_plugin_environments<Catch>})
//
// Built against gristmill::config; examples/cpp_env has the CMake file. Workers load it into their own
// process: it is code that runs with their rights, so name only libraries that you trust.

#include <cstdint>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>

#include "rollout/environment.h"
#include "rollout/vectorised.h"

namespace gristmill {

// Raised with every change of the types that cross the boundary: VectorEnvironment, EnvironmentSpec, Rows,
// StepRows, and those below.
inline constexpr std::uint32_t kPluginAbi = 1;
inline constexpr std::uint32_t kPluginMagic = 0x6d6c6967;  // "gilm"

// kwargs: env.kwargs, a JSON object. Copy i is seeded from stream (seed, first_index + i). Throws
// std::invalid_argument for arguments that are wrong.
using PluginMaker = std::unique_ptr<VectorEnvironment> (*)(const std::string& kwargs, std::int64_t count,
                                                           std::uint64_t seed, std::int64_t first_index);

struct PluginEnvironment {
  const char* name;
  PluginMaker make;
};

// What a library exports, by gristmill_plugin(). The first four members never move.
struct Plugin {
  std::uint32_t magic = kPluginMagic;
  std::uint32_t abi = kPluginAbi;
  // Two compilers that differ here lay out std::string or the types above in ways of their own.
  std::uint32_t cxx11_abi = _GLIBCXX_USE_CXX11_ABI;
  std::uint32_t type_bytes = sizeof(EnvironmentSpec) << 16 | sizeof(StepRows);
  std::int64_t count = 0;
  const PluginEnvironment* environments = nullptr;
};

// For an environment class without arguments.
template <class E>
std::unique_ptr<VectorEnvironment> make_plugin_environments(const std::string& kwargs, std::int64_t count,
                                                            std::uint64_t seed, std::int64_t first_index) {
  if (kwargs != "{}") throw std::invalid_argument("the environment takes no arguments, got " + kwargs);
  return std::make_unique<Vectorised<E>>(count, seed, first_index);
}

inline constexpr const char* kPluginPrefix = "plugin:";

// The environments that `id`, "plugin:path:Name", names; a relative path is taken from the working folder.
// The library stays loaded. Throws std::invalid_argument: it cannot be loaded, is no plugin, was built for
// another ABI, has no environment of that name, or refused its arguments.
std::unique_ptr<VectorEnvironment> make_plugin_environments(const std::string& id, const std::string& kwargs,
                                                            std::int64_t count, std::uint64_t seed,
                                                            std::int64_t first_index);

}  // namespace gristmill

// In one source of the library, outside any namespace: {name, maker}, …
#define GRISTMILL_PLUGIN(...)                                                                     \
  extern "C" __attribute__((visibility("default"))) const gristmill::Plugin* gristmill_plugin() { \
    static const gristmill::PluginEnvironment environments[] = {__VA_ARGS__};                     \
    static const gristmill::Plugin plugin = [] {                                                  \
      gristmill::Plugin made;                                                                     \
      made.count = std::size(environments);                                                       \
      made.environments = environments;                                                           \
      return made;                                                                                \
    }();                                                                                          \
    return &plugin;                                                                               \
  }
