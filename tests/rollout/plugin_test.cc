#include "rollout/plugin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "rollout/config.h"
#include "rollout/environment.h"

namespace gristmill {
namespace {

using testing::HasSubstr;

std::string id(const std::string& library, const std::string& name) {
  return "plugin:" + std::string(PLUGIN_FOLDER) + "/" + library + ".so:" + name;
}

std::string refusal(const std::string& env_id, const std::string& kwargs = "{}") {
  try {
    make_native_environments(env_id, 1, 0, 0, kwargs);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "none";
}

std::vector<float> play(VectorEnvironment& environments) {
  const auto count = static_cast<std::size_t>(environments.size());
  std::vector<float> observations(2 * count), finals(2 * count), rewards(count);
  std::vector<char> terminated(count), truncated(count);
  std::vector<std::int32_t> actions(count, 2);
  const auto rows = [](auto& values, std::ptrdiff_t stride) {
    return Rows{reinterpret_cast<std::byte*>(values.data()), stride};
  };
  environments.reset(rows(observations, 8));
  std::vector<float> seen;
  for (int t = 0; t < 30; ++t) {
    environments.step(rows(actions, 4), {.observations = rows(observations, 8),
                                         .rewards = rows(rewards, 4),
                                         .terminated = rows(terminated, 1),
                                         .truncated = rows(truncated, 1),
                                         .final_observations = rows(finals, 8)});
    seen.insert(seen.end(), observations.begin(), observations.end());
  }
  return seen;
}

TEST(Plugin, StepsItsEnvironmentsAsIfTheyWereNative) {
  const auto ours = make_native_environments("template", 3, 7, 0);
  const auto theirs = make_native_environments(id("plugin_whole", "Corridor"), 3, 7, 0);
  EXPECT_EQ(theirs->size(), 3);
  EXPECT_EQ(theirs->spec(), ours->spec());
  EXPECT_EQ(play(*theirs), play(*ours));
}

TEST(Plugin, GetsTheArgumentsAndMayRefuseThem) {
  EXPECT_EQ(make_native_environments(id("plugin_whole", "Arguments"), 2, 0, 0, R"({"length": 3})")->size(),
            2);
  EXPECT_EQ(refusal(id("plugin_whole", "Arguments")), "length is missing");
  EXPECT_THAT(refusal(id("plugin_whole", "Corridor"), R"({"length": 3})"), HasSubstr("takes no arguments"));
}

TEST(Plugin, WithoutThatEnvironmentNamesThoseThatItHas) {
  EXPECT_THAT(refusal(id("plugin_whole", "Corridors")),
              HasSubstr("it has Corridor, Arguments, Waits, Spins"));
}

TEST(Plugin, ThatCannotBeLoadedIsRefusedWithTheReason) {
  EXPECT_THAT(refusal(id("absent", "Corridor")), HasSubstr("No such file"));
  EXPECT_THAT(refusal("plugin:" + std::filesystem::path("/proc/self/status").string() + ":X"),
              HasSubstr("cannot be loaded"));
}

TEST(Plugin, ThatIsAnOrdinaryLibraryIsRefused) {
  EXPECT_THAT(refusal(id("plugin_none", "Corridor")), HasSubstr("does not export gristmill_plugin()"));
}

TEST(Plugin, OfAnotherAbiIsRefused) {
  EXPECT_THAT(refusal(id("plugin_other_abi", "Corridor")), HasSubstr("build it anew"));
  EXPECT_THAT(refusal(id("plugin_other_types", "Corridor")), HasSubstr("build both alike"));
}

TEST(Plugin, IdWithoutAPathOrANameIsRefused) {
  for (const char* bad : {"plugin:", "plugin:Name", "plugin::Name", "plugin:path.so:"}) {
    EXPECT_THAT(refusal(bad), HasSubstr("expected plugin:<path")) << bad;
  }
}

TEST(Plugin, IsNativeAndItsIdIsOneOfTheConfiguration) {
  EXPECT_TRUE(is_native_environment("plugin:anything.so:Name"));
  const auto config =
      parse_config("", "test", {"env.id=plugin:/a folder/lib+x.so:Name_1", "env.kwargs={\"a\": 1}"}).config;
  EXPECT_EQ(config.env.id, "plugin:/a folder/lib+x.so:Name_1");
  EXPECT_THROW(parse_config("", "test", {"env.id=plugin:/lib.so:"}), ConfigError);
}

}  // namespace
}  // namespace gristmill
