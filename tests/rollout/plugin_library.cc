// A plugin for plugin_test.cc: whole, or with one thing wrong.

#include "rollout/plugin.h"

#include <unistd.h>

#include <atomic>

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

// Seen in stacks.
__attribute__((noinline)) void wait_for_the_simulator() {
  while (true) ::pause();
}

__attribute__((noinline)) void turn_in_circles() {
  static std::atomic<std::uint64_t> turns{0};
  while (true) turns.fetch_add(1, std::memory_order_relaxed);
}

template <void (*hang)()>
class Hanging : public gristmill::TemplateEnvironment {
 public:
  using TemplateEnvironment::TemplateEnvironment;
  gristmill::StepResult step(std::int32_t action, float* observation) {
    if (++calls_ == 50) hang();
    return TemplateEnvironment::step(action, observation);
  }

 private:
  int calls_ = 0;
};

}  // namespace

GRISTMILL_PLUGIN({"Corridor", &gristmill::make_plugin_environments<gristmill::TemplateEnvironment>},
                 {"Arguments", &with_arguments},
                 {"Waits", &gristmill::make_plugin_environments<Hanging<&wait_for_the_simulator> >},
                 {"Spins", &gristmill::make_plugin_environments<Hanging<&turn_in_circles> >})

#endif
