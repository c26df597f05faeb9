#include "rollout/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "core/segment.h"

namespace gristmill {
namespace {

namespace fs = std::filesystem;

class LaunchTest : public testing::Test {
 protected:
  LaunchTest() { config_.config.run.dir = (root_ / "runs").string(); }
  ~LaunchTest() override { fs::remove_all(root_); }

  // Workers that stop when they are told.
  static LaunchOptions workers() { return {.worker_command = {SCRIPTED_WORKER, "good"}, .resume_dir = {}}; }
  int runs() const {
    const fs::path parent = root_ / "runs";
    return fs::exists(parent) ? static_cast<int>(std::distance(fs::directory_iterator(parent), {})) : 0;
  }

  const fs::path root_ = fs::temp_directory_path() / ("gristmill-launch-" + std::to_string(::getpid()));
  ResolvedConfig config_;
};

TEST_F(LaunchTest, MakesAPrivateDirectoryWithTheResolvedConfiguration) {
  const Launch launch(config_, workers());
  struct stat status {};
  ASSERT_EQ(::stat(launch.run_dir().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700U);
  const ResolvedConfig read = load_config(launch.run_dir() + "/config.yaml", {});
  EXPECT_EQ(read.config.run.name, fs::path(launch.run_dir()).filename().string());
}

TEST_F(LaunchTest, ANameThatExistsIsRefusedAndNothingOfItTouched) {
  config_.config.run.name = "mine";
  { const Launch launch(config_, workers()); }
  try {
    const Launch again(config_, workers());
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("run.name"));
    EXPECT_THAT(error.what(), testing::HasSubstr("gristmill resume"));
  }
  EXPECT_TRUE(fs::exists(root_ / "runs" / "mine" / "config.yaml"));
}

TEST_F(LaunchTest, MadeUpNamesDoNotCollide) {
  const Launch first(config_, workers());
  const Launch second(config_, workers());
  EXPECT_NE(first.run_dir(), second.run_dir());
}

TEST_F(LaunchTest, AWorkerThatCannotBeStartedLeavesNoDirectoryAndNoSegment) {
  EXPECT_THROW(Launch(config_, {.worker_command = {"/nowhere/worker"}, .resume_dir = {}}),
               std::runtime_error);
  EXPECT_EQ(runs(), 0);
  for (const SegmentInfo& segment : list_segments())
    EXPECT_NE(segment.owner, ProcessIdentity::self()) << segment.name;
}

TEST_F(LaunchTest, AnAbandonedRunLeavesNoDirectoryUnlessSomethingElseIsInIt) {
  Launch empty(config_, workers());
  empty.abandon();
  EXPECT_FALSE(fs::exists(empty.run_dir()));
  Launch used(config_, workers());
  fs::create_directory(fs::path(used.run_dir()) / "checkpoints");
  used.abandon();
  EXPECT_TRUE(fs::exists(fs::path(used.run_dir()) / "config.yaml"));
}

TEST_F(LaunchTest, ADirectoryThatCannotBeMadeIsNamedWithTheOptionThatChoosesIt) {
  config_.config.run.dir = "/proc/nowhere";
  try {
    const Launch launch(config_, workers());
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("/proc/nowhere"));
    EXPECT_THAT(error.what(), testing::HasSubstr("run.dir"));
  }
}

}  // namespace
}  // namespace gristmill
