// A worker process that behaves as its first argument says, for the tests of WorkerPool:
//   scripted_worker BEHAVIOUR --board NAME --index I
// "-once" behaviours are good workers from their first restart on.

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "core/fault_point.h"
#include "core/run_board.h"
#include "core/trajectory_queue.h"
#include "rollout/parent_death.h"
#include "rollout/stack_report.h"

namespace {

using namespace gristmill;
using namespace std::chrono_literals;

// Seen in stacks.
__attribute__((noinline)) void sleep_for_ever() {
  while (true) ::pause();
}

volatile sig_atomic_t told = 0;

void sleep_until_told() {
  ::signal(SIGUSR1, [](int) { told = 1; });
  while (told == 0) ::usleep(1000);
}

int fail(RunBoard::Row& row, Phase phase, const std::string& error) {
  row.set_error(error);
  row.set_phase(phase);
  return 1;
}

// What reached this process from its parent.
std::string inheritance() {
  std::string text;
  for (const char* name : {"OMP_NUM_THREADS", "MKL_NUM_THREADS"}) {
    const char* value = std::getenv(name);
    text += std::string(name) + "=" + (value == nullptr ? "unset" : value) + ";";
  }
  struct sigaction action {};
  ::sigaction(SIGINT, nullptr, &action);
  text += std::string("SIGINT=") + (action.sa_handler == SIG_IGN ? "ignored" : "not ignored") + ";";
  ::sigaction(SIGPIPE, nullptr, &action);
  text += std::string("SIGPIPE=") + (action.sa_handler == SIG_DFL ? "default" : "not default") + ";";
  sigset_t mask;
  ::sigprocmask(SIG_SETMASK, nullptr, &mask);
  int blocked = 0;
  for (int signal = 1; signal < 32; ++signal) blocked += ::sigismember(&mask, signal);
  text += "blocked=" + std::to_string(blocked) + ";";
  text += "stdin=" + std::filesystem::read_symlink("/proc/self/fd/0").string() + ";";
  int inherited = 0;
  for (int fd = 3; fd < 1024; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) continue;
    const std::string target = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd)).string();
    if (target.find("gristmill") == std::string::npos) ++inherited;  // not its own board
  }
  text += "fds=" + std::to_string(inherited) + ";";
  return text;
}

// Until told to stop.
int work(RunBoard& board, RunBoard::Row& row, bool deaf) {
  while (deaf || !board.stop_requested()) {
    row.add(Counter::kFrames, 64);
    row.beat();
    ::usleep(2000);
  }
  row.set_phase(Phase::kStopped);
  return 0;
}

// Dies with a claimed place in the queue.
int claim(const std::string& board) {
#ifdef GRISTMILL_FAULT_POINTS
  const auto queue = TrajectoryQueue::attach(board.substr(0, board.rfind('.')) + ".queue", Deadline::in(10s));
  fault::arm("put.copied_field", fault::Action::kKill);
  const std::vector<std::byte> bytes(queue->spec()[0].bytes() * 2);
  const std::byte* const field = bytes.data();
  queue->put_many({&field, 1}, 2, Deadline::in(10s));
#else
  (void)board;
#endif
  return 1;
}

int run(const std::string& behaviour, const std::string& board_name, int index) {
  report_stacks();
  const auto board = RunBoard::attach(board_name, Deadline::in(10s));
  die_with_parent(static_cast<pid_t>(board->owner().pid));
  RunBoard::Row row = board->row(index);
  row.enter();
  const bool first = row.incarnation() == 0;
  if (behaviour == "bad-env") return fail(row, Phase::kFailed, "unknown environment 'cartpoel'");
  if (behaviour == "hang-at-start-once" && first) sleep_for_ever();
  row.set_description(behaviour == "inheritance" ? inheritance() : "{}");
  row.set_phase(Phase::kDescribed);
  if (behaviour == "fail-described") return fail(row, Phase::kFailed, "no such action space");
  while (!board->await_ready(Deadline::in(100ms))) {
    if (board->stop_requested()) return 0;
  }
  if (behaviour == "hang-described-once" && first) sleep_for_ever();
  row.set_phase(Phase::kRunning);
  row.add(Counter::kFrames, 93512);
  if (behaviour == "crash") return 3;
  if (behaviour == "leave-once" && first) {
    row.set_phase(Phase::kStopped);
    return 0;
  }
  if (behaviour == "claim-once" && first) return claim(board_name);
  if (behaviour == "segfault-once" && first) {
    ::signal(SIGSEGV, SIG_DFL);  // sanitizers turn it into an exit status otherwise
    ::raise(SIGSEGV);
  }
  if (behaviour == "fatal-and-stay") {
    fail(row, Phase::kFatal, "reward is NaN at step 7");
    sleep_for_ever();
  }
  if (behaviour == "fatal") return fail(row, Phase::kFatal, "reward is NaN at step 7");
  if (behaviour == "fail-once" && first)
    return fail(row, Phase::kFailed, "Traceback …\nValueError: at step 90000");
  if (behaviour == "fail-and-stay-once" && first) {
    fail(row, Phase::kFailed, "an error before the hang");
    sleep_for_ever();
  }
  if (behaviour == "hang-once" && first) sleep_for_ever();
  if (behaviour == "one-hangs-once" && first && index == 0) sleep_for_ever();
  if (behaviour == "pause" && first) sleep_until_told();
  return work(*board, row, behaviour == "deaf");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return 64;
  if (std::string(argv[1]) == "mute") return 9;
  return run(argv[1], argv[3], std::atoi(argv[5]));
}
