// The native environments by id.

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string_view>

#include "rollout/cartpole.h"
#include "rollout/plugin.h"
#include "rollout/synthetic.h"
#include "rollout/template_environment.h"
#include "rollout/truncating.h"
#include "rollout/vectorised.h"

namespace gristmill {

namespace {

using Maker = std::unique_ptr<VectorEnvironment> (*)(std::int64_t, std::uint64_t, std::int64_t,
                                                     const std::string&);

template <typename E>
std::unique_ptr<VectorEnvironment> make(std::int64_t count, std::uint64_t seed, std::int64_t first_index,
                                        const std::string& /*kwargs*/) {
  return std::make_unique<Vectorised<E>>(count, seed, first_index);
}

std::unique_ptr<VectorEnvironment> make_synthetic(std::int64_t count, std::uint64_t seed,
                                                  std::int64_t first_index, const std::string& kwargs) {
  return std::make_unique<SyntheticEnvironments>(SyntheticOptions::from_json(kwargs), count, seed,
                                                 first_index);
}

struct Entry {
  std::string_view id;
  Maker make;
};

// An environment of your own goes here: one line.
constexpr std::array kEntries = {
    Entry{"cartpole", make<CartPole>},
    Entry{"template", make<TemplateEnvironment>},
    Entry{"truncating", make<Truncating>},
    Entry{"synthetic", make_synthetic},
};

const Entry* find(const std::string& id) {
  const auto found = std::ranges::find(kEntries, id, &Entry::id);
  return found == kEntries.end() ? nullptr : &*found;
}

}  // namespace

std::unique_ptr<VectorEnvironment> make_native_environments(const std::string& id, std::int64_t count,
                                                            std::uint64_t seed, std::int64_t first_index,
                                                            const std::string& kwargs) {
  if (id.starts_with(kPluginPrefix)) return make_plugin_environments(id, kwargs, count, seed, first_index);
  if (const Entry* entry = find(id)) return entry->make(count, seed, first_index, kwargs);
  std::string known;
  for (const Entry& entry : kEntries) known.append(known.empty() ? "" : ", ").append(entry.id);
  throw std::invalid_argument("env.id: no native environment is called \"" + id + "\"; there are " + known +
                              "; Gymnasium's are written gymnasium:ID, as in gymnasium:CartPole-v1");
}

bool is_native_environment(const std::string& id) {
  return id.starts_with(kPluginPrefix) || find(id) != nullptr;
}

std::vector<std::string> native_environment_ids() {
  std::vector<std::string> ids;
  for (const Entry& entry : kEntries) ids.emplace_back(entry.id);
  return ids;
}

}  // namespace gristmill
