#pragma once

// A run's log. What workers say travels to the learner process through a MessageQueue of the run,
// "<run>.log", and is written there to <run's folder>/log.txt. The queue drops its oldest records when it
// is full: no worker ever waits for its log. No torch here.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/message_queue.h"

namespace gristmill {

// Numbered as in Python's logging, whose own levels may lie between.
enum class LogLevel : int { kDebug = 10, kInfo = 20, kWarning = 30, kError = 40 };

struct LogRecord {
  int worker = 0;
  int level = static_cast<int>(LogLevel::kInfo);
  double time = 0;   // seconds since the epoch
  std::string text;  // UTF-8; may have several lines
};

// A record as it lies in the queue: worker and level (int32), time (float64), text. Python's workers write
// the same (worker_log.py).
std::string encode_record(const LogRecord& record);
// Nothing unless it is a record. The text is made printable: valid UTF-8, no control characters but tabs
// and line breaks, no terminal's escape sequences; of at most kLongestRecord bytes.
std::optional<LogRecord> decode_record(std::span<const std::byte> message);
inline constexpr std::size_t kLongestRecord = 16 * 1024;

// "debug", "info", "warning", "error"; nothing for "off". Throws std::invalid_argument for anything else.
std::optional<LogLevel> log_level_named(const std::string& name);
// The log's segment, from the board's: "<run>.board" -> "<run>.log".
std::string log_name(const std::string& board);

// Worker's side. Any thread; never throws, and never waits for space.
class WorkerLog {
 public:
  // level: workers_level of the configuration. A log that is not there (or "off") takes nothing.
  WorkerLog(const std::string& board, int worker, const std::string& level) noexcept;
  WorkerLog(const WorkerLog&) = delete;
  WorkerLog& operator=(const WorkerLog&) = delete;

  // Whether records of this level are kept.
  bool keeps(LogLevel level) const { return queue_ && level >= lowest_; }
  void say(LogLevel level, std::string_view text) noexcept;

 private:
  int worker_;
  LogLevel lowest_ = LogLevel::kInfo;
  std::unique_ptr<MessageQueue> queue_;
};

// Learner's side: the queue's owner, and the file. One thread, except where said.
class RunLog {
 public:
  // Shows a line to people: warnings and worse. Of a flood only the first kShown, then kShownPerSecond.
  using Show = std::function<void(int level, const std::string& text)>;
  static constexpr int kShown = 50;
  static constexpr double kShownPerSecond = 10;
  static constexpr std::uint64_t kQueueBytes = 512 * 1024;

  // Creates the queue, unless `level` is "off". The file is opened at the first line. Throws SegmentError.
  RunLog(const std::string& board, const std::string& folder, const std::string& level);
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  // Writes what workers have said. To be called often: it looks into the queue every kInterval only, and
  // takes no more than kAtOnce bytes then, so that a flood costs the learner little.
  static constexpr std::chrono::milliseconds kInterval{50};
  static constexpr std::uint64_t kAtOnce = 32 * 1024;
  void take(const Show& show);
  // The same with all that is left, and what was dropped, when nobody writes any more.
  void finish(const Show& show);
  // A line of the run itself. Not shown.
  void note(LogLevel level, std::string_view text);

  // Records that gave way because workers said more than was taken. Any thread.
  std::uint64_t dropped() const;
  const std::string& path() const;

 private:
  struct File;
  using Clock = std::chrono::steady_clock;

  bool take_some(const Show& show);
  void show_some(const LogRecord& record, const Show& show);
  void tell_unshown(const Show& show);
  void warn(const std::string& text, const Show& show);
  void tell_error(const Show& show);

  std::unique_ptr<MessageQueue> queue_;  // null: off
  std::unique_ptr<File> file_;
  Clock::time_point next_look_;
  Clock::time_point next_tell_;
  Clock::time_point filled_;  // when may_show_ was last counted up
  double may_show_ = kShown;
  std::int64_t unshown_ = 0;
};

}  // namespace gristmill
