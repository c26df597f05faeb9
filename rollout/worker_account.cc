#include "rollout/worker_account.h"

#include <chrono>
#include <cstdio>

#include "rollout/child_process.h"

namespace gristmill {

namespace {

// 93512 -> "93 512".
std::string grouped(std::uint64_t number) {
  std::string text = std::to_string(number);
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > 0; at -= 3) {
    text.insert(static_cast<std::size_t>(at), 1, ' ');
  }
  return text;
}

const char* doing(Phase phase) {
  switch (phase) {
    case Phase::kEmpty:
      return "not started";
    case Phase::kStarting:
      return "making its environments";
    case Phase::kDescribed:
      return "waiting for the learner, or loading its policy";
    case Phase::kRunning:
      return "running";
    case Phase::kStopped:
      return "ended as told";
    case Phase::kFailed:
    case Phase::kFatal:
      return "failed";
  }
  return "unknown";
}

double seconds_since(std::uint64_t monotonic_ns) {
  const std::chrono::nanoseconds then(monotonic_ns);
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch() - then).count();
}

}  // namespace

std::string worker_name(int index, pid_t pid) {
  const std::string name = "worker " + std::to_string(index);
  return pid == 0 ? name : name + " (pid " + std::to_string(pid) + ")";
}

std::string in_seconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g s", seconds);
  return text;
}

std::string after_frames(const RunBoard::Row& row) {
  return " after " + grouped(row.get(Counter::kFrames)) + " frames";
}

std::string describe_failure(const RunBoard::Row& row, const std::string& exit) {
  const std::string error = row.error();
  return "failed" + after_frames(row) + ": " + (error.empty() ? "it left no error text, and " + exit : error);
}

std::string describe_end(const RunBoard::Row& row, int status) {
  const std::string exit = describe_exit(status);
  const Phase phase = row.phase();
  if (phase == Phase::kFailed || phase == Phase::kFatal) return describe_failure(row, exit);
  return exit + after_frames(row) + (status == 0 ? " although nobody had told it to stop" : "");
}

std::string describe_worker(const RunBoard::Row& row, int index) {
  const ProcessIdentity identity = row.identity();
  const auto pid = static_cast<pid_t>(identity.pid);
  std::string text = worker_name(index, pid) + ": ";
  text += doing(row.phase());
  text += ", last heartbeat " + in_seconds(std::chrono::duration<double>(row.since_beat()).count()) + " ago";
  const std::uint64_t pushed = row.get(Counter::kLastStepNs);
  text += pushed == 0 ? ", nothing pushed yet" : ", last push " + in_seconds(seconds_since(pushed)) + " ago";
  text += ", " + grouped(row.get(Counter::kFrames)) + " frames";
  if (pid != 0) text += "; " + describe_activity(pid);
  return text;
}

}  // namespace gristmill
