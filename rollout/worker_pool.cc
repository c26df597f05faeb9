#include "rollout/worker_pool.h"

#include <signal.h>
#include <unistd.h>

#include <future>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>

#include "rollout/child_process.h"
#include "rollout/worker_account.h"
#include "rollout/worker_supervisor.h"

namespace gristmill {

struct WorkerPool::Impl {
  Impl(const Config::Workers& config, Command command, RunBoard& the_board)
      : supervisor(config, std::move(command), the_board), board(the_board), count(config.count) {}

  WorkerSupervisor supervisor;
  RunBoard& board;
  const std::int64_t count;
  const pid_t owner = ::getpid();
  std::mutex join_mutex;
  std::thread thread;
};

WorkerPool::WorkerPool(const Config& config, Command command, RunBoard& board) {
  const auto count = static_cast<int>(config.workers.count);
  if (command.empty()) throw std::runtime_error("worker pool: the command to start a worker is empty");
  if (count > board.rows()) {
    throw std::runtime_error("worker pool: " + std::to_string(count) + " workers, but the run board '" +
                             board.name() + "' has only " + std::to_string(board.rows()) + " rows");
  }
  command[0] = find_program(command[0]);
  impl_ = std::make_unique<Impl>(config.workers, std::move(command), board);

  std::promise<void> promise;
  std::future<void> started = promise.get_future();
  // Signals are for the main thread.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  impl_->thread =
      std::thread([supervisor = &impl_->supervisor](std::promise<void> p) { supervisor->run(std::move(p)); },
                  std::move(promise));
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  try {
    started.get();
  } catch (...) {
    impl_->thread.join();
    throw;
  }
}

WorkerPool::~WorkerPool() {
  if (::getpid() != impl_->owner) {
    // A forked child has neither the thread nor the workers.
    [[maybe_unused]] Impl* const leaked = impl_.release();
    return;
  }
  stop(std::chrono::seconds(2));
}

void WorkerPool::watch_queue(TrajectoryQueue* queue) { impl_->supervisor.watch_queue(queue); }
std::vector<WorkerEvent> WorkerPool::take_events() { return impl_->supervisor.take_events(); }
int WorkerPool::alive() const { return impl_->supervisor.alive(); }
std::int64_t WorkerPool::restarts() const { return impl_->supervisor.restarts(); }
std::string WorkerPool::failure() const { return impl_->supervisor.failure(); }

std::vector<std::string> WorkerPool::describe_workers() const {
  std::vector<std::string> lines;
  for (int i = 0; i < static_cast<int>(impl_->count); ++i) {
    const RunBoard::Row row = impl_->board.row(i);
    lines.push_back(describe_worker(row, i));
  }
  return lines;
}

void WorkerPool::stop(std::chrono::milliseconds grace) {
  const std::lock_guard guard(impl_->join_mutex);
  if (!impl_->thread.joinable()) return;
  impl_->supervisor.request_stop(grace);
  impl_->thread.join();
}

}  // namespace gristmill
