#include "tests/campaign/round.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>

#include "core/fault_point.h"
#include "core/segment.h"
#include "tests/campaign/box_scene.h"
#include "tests/campaign/queue_scene.h"
#include "tests/campaign/segment_scene.h"
#include "tests/campaign/shared.h"
#include "tests/campaign/tormentor.h"
#include "tests/campaign/trajectory_scene.h"

namespace gristmill::campaign {

volatile int interrupted = 0;

namespace {

using namespace std::chrono_literals;

std::unique_ptr<Scene> scene_of(const Plan& plan, Result& result) {
  switch (plan.part) {
    case Part::kQueue:
      return std::make_unique<QueueScene>(plan, result);
    case Part::kTrajectories:
      return std::make_unique<TrajectoryScene>(plan, result);
    case Part::kBox:
      return std::make_unique<BoxScene>(plan, result);
    case Part::kSegments:
      break;
  }
  return std::make_unique<SegmentScene>(plan, result);
}

void play_here(const Plan& plan, Result& result) {
  if (plan.mistake == Mistake::kNoRecovery) fault::disable_recovery();
  const std::unique_ptr<Scene> scene = scene_of(plan, result);
  std::size_t role = 0;
  for (const Role& one : scene->cast()) {
    result.processes[role] = one.count;
    std::memcpy(result.roles[role++], one.name.data(), std::min(one.name.size(), sizeof result.roles[0] - 1));
  }
  Tormentor tormentor(plan, *scene, result);
  tormentor.torment();
  if (!tormentor.hopeless()) scene->finish(tormentor, result);
  tormentor.settle();
}

// Segments of ours that the round's process has left.
void look_for_leftovers(pid_t round, Result& result) {
  for (const SegmentInfo& segment : list_segments()) {
    if (segment.owner.pid != round || segment.name.find(".soak-") == std::string::npos) continue;
    if (result.ended) result.find(Finding::kLeft, 1, segment.name);
    ::shm_unlink(segment.name.c_str());
  }
}

}  // namespace

bool play_round(const Plan& plan, Result& result) {
  const Shared<Result> there;
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    ::signal(SIGINT, SIG_IGN);  // the parent decides
    ::signal(SIGTERM, SIG_DFL);
    try {
      Plan here = plan;
      here.run = "soak-" + std::to_string(::getpid());
      play_here(here, *there);
      there->ended = true;
    } catch (const std::exception& error) {
      there->find(Finding::kBroken, 1, std::string("the round ended with an exception: ") + error.what());
      ::_exit(1);
    }
    ::_exit(0);
  }
  if (pid < 0) {
    result.find(Finding::kBroken, 1, "fork failed with errno " + std::to_string(errno));
    return true;
  }
  const auto limit = std::chrono::steady_clock::now() + plan.duration + 40s;
  int status = 0;
  bool hung = false;
  while (::waitpid(pid, &status, WNOHANG) == 0) {
    hung = std::chrono::steady_clock::now() > limit;
    if (hung || interrupted != 0) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, &status, 0);
      break;
    }
    std::this_thread::sleep_for(5ms);
  }
  result.add(*there);
  for (std::size_t i = 0; i < there->text_count && result.text_count < Result::kTexts; ++i) {
    std::memcpy(result.texts[result.text_count++], there->texts[i], Result::kText);
  }
  result.ended = there->ended;
  if (hung) {
    result.find(Finding::kHung, 1, "the round does not end");
  } else if (!there->ended && interrupted == 0 && there->violations() == 0) {
    result.find(Finding::kBroken, 1, "the round's own process ended with status " + std::to_string(status));
  }
  look_for_leftovers(pid, result);
  return interrupted == 0;
}

}  // namespace gristmill::campaign
