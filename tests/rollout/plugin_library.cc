// A plugin for plugin_test.cc: whole, or with one thing wrong.

#include "rollout/plugin.h"

#include "rollout/template_environment.h"

#if defined(NO_PLUGIN)

extern "C" __attribute__((visibility("default"))) int something_else() { return 1; }

#elif defined(OTHER_ABI)

extern "C" __attribute__((visibility("default"))) const gristmill::Plugin* gristmill_plugin() {
  static const gristmill::Plugin plugin = [] {
    gristmill::Plugin made;
    made.abi += 1;
    return made;
  }();
  return &plugin;
}

#elif defined(OTHER_TYPES)

extern "C" __attribute__((visibility("default"))) const gristmill::Plugin* gristmill_plugin() {
  static const gristmill::Plugin plugin = [] {
    gristmill::Plugin made;
    made.type_bytes ^= 8;
    return made;
  }();
  return &plugin;
}

#else

namespace {

std::unique_ptr<gristmill::VectorEnvironment> with_arguments(const std::string& kwargs, std::int64_t count,
                                                             std::uint64_t seed, std::int64_t first_index) {
  if (kwargs.find("length") == std::string::npos) throw std::invalid_argument("length is missing");
  return std::make_unique<gristmill::Vectorised<gristmill::TemplateEnvironment> >(count, seed, first_index);
}

}  // namespace

GRISTMILL_PLUGIN({"Corridor", &gristmill::make_plugin_environments<gristmill::TemplateEnvironment>},
                 {"Arguments", &with_arguments})

#endif
