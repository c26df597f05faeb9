#pragma once

// A pool of scripted workers (scripted_worker.cc), on a board of its own.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "core/segment.h"
#include "rollout/worker_pool.h"
#include "tests/core/forked.h"

namespace gristmill {

// scripted_worker's path is defined by CMake.
inline WorkerPool::Command scripted(const std::string& behaviour) { return {SCRIPTED_WORKER, behaviour}; }

inline bool no_child_is_left() { return ::waitpid(-1, nullptr, WNOHANG) < 0 && errno == ECHILD; }

class WorkerPoolTest : public testing::Test {
 protected:
  WorkerPoolTest() {
    static int number = 0;
    run_ = "pool-test" + std::to_string(number++);
    board_ = RunBoard::create(segment_name(run_, "board"), 4);
    config_.workers.count = 2;
    config_.workers.restart_backoff_s = 0.01;
  }
  ~WorkerPoolTest() override {
    pool_.reset();
    EXPECT_TRUE(no_child_is_left());
  }

  WorkerPool& start(const WorkerPool::Command& command) {
    pool_ = std::make_unique<WorkerPool>(config_, command, *board_);
    board_->announce_ready();
    return *pool_;
  }
  bool all_running() {
    for (int i = 0; i < config_.workers.count; ++i) {
      if (board_->row(i).phase() != Phase::kRunning) return false;
    }
    return true;
  }
  // Collects events until there is one of this kind.
  bool see(WorkerEvent::Kind kind) {
    return eventually([&] { return find(kind) != nullptr; });
  }
  const WorkerEvent* find(WorkerEvent::Kind kind) {
    for (WorkerEvent& event : pool_->take_events()) events_.push_back(std::move(event));
    for (const WorkerEvent& event : events_) {
      if (event.kind == kind) return &event;
    }
    return nullptr;
  }
  std::string message(WorkerEvent::Kind kind) {
    const WorkerEvent* const event = find(kind);
    return event == nullptr ? "(none)" : event->message;
  }
  bool gives_up() {
    return eventually([&] { return !pool_->failure().empty(); });
  }

  std::string run_;
  Config config_;
  std::unique_ptr<RunBoard> board_;
  std::unique_ptr<WorkerPool> pool_;
  std::vector<WorkerEvent> events_;
};

}  // namespace gristmill
