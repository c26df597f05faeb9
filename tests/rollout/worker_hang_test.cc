// The real worker, gristmill-worker, whose environment hangs in native code.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "core/box.h"
#include "core/trajectory_queue.h"
#include "rollout/launch.h"
#include "rollout/policy.h"
#include "rollout/trajectory.h"
#include "rollout/worker.h"
#include "tests/core/forked.h"

namespace gristmill {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

class WorkerHangTest : public testing::Test {
 protected:
  ~WorkerHangTest() override { fs::remove_all(root_); }

  // A run of one worker, with all that a learner would give it, until it is found to hang.
  void run_until_it_hangs(const std::string& env_id, const std::string& kwargs) {
    const ResolvedConfig config = parse_config(
        "{env: {id: \"" + env_id + "\", kwargs: " + kwargs + "}, run: {dir: \"" + root_.string() +
            "\"}, workers: {count: 1, envs_per_worker: 2, unroll: 8, hang_timeout_s: 4}}",
        "the test", {});
    Launch launch(config, {.worker_command = {GRISTMILL_WORKER}, .resume_dir = {}});
    RunBoard& board = launch.board();
    ASSERT_TRUE(eventually([&] { return board.row(0).reached(Phase::kDescribed); })) << all_of(launch);
    const auto environment = EnvironmentSpec::from_json(board.row(0).description());
    const auto queue = TrajectoryQueue::create(
        queue_name(board.name()), trajectory_fields(environment, config.config.workers.unroll), 64);
    const torch::Tensor parameters = Policy(config.config.policy, environment).initial_parameters(1);
    const auto box =
        Box::create(box_name(board.name()),
                    {{.name = "parameters", .dtype = DType::kFloat32, .shape = {parameters.numel()}}});
    const auto* bytes = reinterpret_cast<const std::byte*>(parameters.data_ptr<float>());
    box->publish({&bytes, 1}, Deadline::in(std::chrono::seconds(10)));
    board.announce_ready();
    ASSERT_TRUE(eventually([&] {
      all_of(launch);
      return hung_.size() == 2;
    })) << all_of(launch);
    EXPECT_THAT(hung_[0], AllOf(HasSubstr("worker 0 (pid "), HasSubstr("has given no sign of life for "),
                                HasSubstr("after 4 s (workers.hang_timeout_s) it is killed and restarted")));
    EXPECT_THAT(hung_[1], HasSubstr("workers.hang_timeout_s is 4 s"));
  }

  // What was told until now.
  std::string all_of(Launch& launch) {
    for (const WorkerEvent& event : launch.pool().take_events()) {
      told_ += event.message + "\n";
      if (event.kind == WorkerEvent::Kind::kHung) hung_.push_back(event.message);
    }
    return told_;
  }

  const fs::path root_ = fs::temp_directory_path() / ("gristmill-hang-" + std::to_string(::getpid()));
  std::string told_;
  std::vector<std::string> hung_;
};

TEST_F(WorkerHangTest, APluginThatWaitsForEverIsNamedByItsFunctions) {
  run_until_it_hangs(std::string("plugin:") + PLUGIN_FOLDER + "/plugin_whole.so:Waits", "{}");
  for (const std::string& message : hung_) {
    EXPECT_THAT(message, AllOf(ContainsRegex("; state [RSD] "), HasSubstr("Its stack, innermost first:"),
                               HasSubstr("wait_for_the_simulator"), HasSubstr("plugin_whole.so"),
                               HasSubstr("RolloutWorker")));
  }
}

TEST_F(WorkerHangTest, SoIsOneThatComputesForEver) {
  run_until_it_hangs(std::string("plugin:") + PLUGIN_FOLDER + "/plugin_whole.so:Spins", "{}");
  ASSERT_EQ(hung_.size(), 2U);
  EXPECT_THAT(hung_[1], AllOf(ContainsRegex(", in .*turn_in_circles"), HasSubstr("RolloutWorker")));
}

TEST_F(WorkerHangTest, AndAnEnvironmentOfOurs) {
  run_until_it_hangs("synthetic", "{step_us: 10000000, sleep: true}");
  ASSERT_EQ(hung_.size(), 2U);
  EXPECT_THAT(hung_[1], AllOf(HasSubstr("SyntheticEnvironments"), HasSubstr("RolloutWorker")));
}

}  // namespace
}  // namespace gristmill
