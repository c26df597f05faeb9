// A whole training run in C++: configuration → launch → learn → result.
//
//   gristmill-train configs/cartpole.yaml [key=value …]

#include <csignal>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "learner/train.h"
#include "rollout/config.h"
#include "rollout/launch.h"

namespace {

volatile std::sig_atomic_t interrupted = 0;

double figure(const gristmill::Metrics& metrics, const char* name) {
  const auto found = metrics.find(name);
  return found == metrics.end() ? 0 : found->second;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s CONFIG [key=value …]\n", argv[0]);
    return 2;
  }
  std::signal(SIGINT, [](int) { interrupted = 1; });
  std::signal(SIGTERM, [](int) { interrupted = 1; });

  gristmill::TrainHooks hooks;
  hooks.on_metrics = [](const gristmill::Metrics& m) {
    std::printf("%10.0f frames  %9.0f frames/s  return %7.2f  lag %4.1f  queue %3.0f %%\n",
                figure(m, "time/total_timesteps"), figure(m, "time/fps"), figure(m, "rollout/ep_rew_mean"),
                figure(m, "train/policy_lag"), 100 * figure(m, "queue/fill"));
  };
  hooks.on_event = [](const gristmill::WorkerEvent& event) { std::printf("%s\n", event.message.c_str()); };
  hooks.on_message = [](const std::string& message) { std::printf("%s\n", message.c_str()); };
  hooks.should_stop = [] { return interrupted != 0; };

  try {
    const auto config = gristmill::load_config(argv[1], std::vector<std::string>(argv + 2, argv + argc));
    gristmill::Launch launch(config,
                             {.worker_command = gristmill::native_worker_command(), .resume_dir = {}});
    const gristmill::TrainResult result = gristmill::train(launch, {}, hooks);

    std::printf("%s after %.2f s: %lld frames at %.0f frames/s, mean return %.1f\n",
                result.solved ? "solved" : "ended", gristmill::process_age_s(),
                static_cast<long long>(result.frames), result.fps, result.mean_return);
    if (!result.error.empty()) std::fprintf(stderr, "%s\n", result.error.c_str());
    return result.error.empty() ? (interrupted != 0 ? 130 : 0) : 1;
  } catch (const gristmill::ConfigError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
