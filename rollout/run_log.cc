#include "rollout/run_log.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <stdexcept>
#include <utility>

namespace gristmill {
namespace {

using Clock = std::chrono::steady_clock;
using Outcome = MessageQueue::Outcome;

// The learner process has made the log before it starts workers.
constexpr std::chrono::milliseconds kAttachTimeout{1000};
constexpr std::size_t kHead = 16;  // bytes before the text
// After a worker was found stopped inside the queue's lock, which made the learner wait.
constexpr std::chrono::seconds kLater{1};
constexpr std::chrono::seconds kTellInterval{1};

double now_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Bytes of the well-formed UTF-8 sequence at the front; 0: there is none.
std::size_t sequence_length(std::string_view text) {
  const auto at = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : static_cast<unsigned char>(0);
  };
  const auto follows = [&](std::size_t i) { return (at(i) & 0xC0) == 0x80; };
  const unsigned char first = at(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return follows(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const bool overlong = first == 0xE0 && at(1) < 0xA0;
    const bool surrogate = first == 0xED && at(1) >= 0xA0;
    return follows(1) && follows(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const bool overlong = first == 0xF0 && at(1) < 0x90;
    const bool beyond = first == 0xF4 && at(1) >= 0x90;
    return follows(1) && follows(2) && follows(3) && !overlong && !beyond ? 4 : 0;
  }
  return 0;
}

// Length of a terminal's escape sequence at the front, such as that of a colour.
std::size_t escape_length(std::string_view text) {
  if (text.size() < 2 || text[1] != '[') return 1;
  std::size_t end = 2;
  while (end < text.size() && (text[end] < '@' || text[end] > '~')) ++end;
  return std::min(end + 1, text.size());
}

std::string printable(std::string_view text) {
  text = text.substr(0, kLongestRecord);
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const char c = text.front();
    std::size_t length = sequence_length(text);
    if (c == '\r') {
      length = 1;
    } else if (c == '\x1b') {
      length = escape_length(text);
    } else if (length == 0) {
      length = 1;
      out += '?';
    } else if (length > 1 || (c >= ' ' && c != '\x7f') || c == '\t' || c == '\n') {
      out += text.substr(0, length);
    } else {
      out += '?';
    }
    text.remove_prefix(length);
  }
  while (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

std::string who(int worker) { return "worker " + std::to_string(worker); }

const char* level_name(int level) {
  if (level >= static_cast<int>(LogLevel::kError)) return "ERROR";
  if (level >= static_cast<int>(LogLevel::kWarning)) return "WARNING";
  if (level >= static_cast<int>(LogLevel::kInfo)) return "INFO";
  return "DEBUG";
}

// "2026-03-01 12:34:56.789 WARNING worker 1: text"; further lines are indented.
std::string line_of(double time, int level, const std::string& who, std::string_view text) {
  const double whole = std::floor(time);
  const auto seconds = static_cast<std::time_t>(whole);
  std::tm local{};
  localtime_r(&seconds, &local);
  std::array<char, 32> stamp{};
  std::strftime(stamp.data(), stamp.size(), "%Y-%m-%d %H:%M:%S", &local);
  std::array<char, 8> part{};
  std::snprintf(part.data(), part.size(), ".%03u", static_cast<unsigned>((time - whole) * 1000) % 1000);
  std::string line = std::string(stamp.data()) + part.data() + ' ' + level_name(level) + ' ' + who + ": ";
  for (const char c : text) line += c == '\n' ? std::string("\n    ") : std::string(1, c);
  return line + '\n';
}

}  // namespace

std::string encode_record(const LogRecord& record) {
  const std::string_view text = std::string_view(record.text).substr(0, kLongestRecord);
  const auto worker = static_cast<std::int32_t>(record.worker);
  const auto level = static_cast<std::int32_t>(record.level);
  std::string bytes(kHead + text.size(), '\0');
  std::memcpy(bytes.data(), &worker, 4);
  std::memcpy(bytes.data() + 4, &level, 4);
  std::memcpy(bytes.data() + 8, &record.time, 8);
  text.copy(bytes.data() + kHead, text.size());
  return bytes;
}

std::optional<LogRecord> decode_record(std::span<const std::byte> message) {
  if (message.size() < kHead) return std::nullopt;
  std::int32_t worker = 0;
  std::int32_t level = 0;
  LogRecord record;
  std::memcpy(&worker, message.data(), 4);
  std::memcpy(&level, message.data() + 4, 4);
  std::memcpy(&record.time, message.data() + 8, 8);
  // From 1970 to the year 9999: what localtime can tell.
  if (worker < 0 || level < 0 || !(record.time >= 0 && record.time < 253'402'300'800.0)) return std::nullopt;
  record.worker = worker;
  record.level = level;
  record.text = printable({reinterpret_cast<const char*>(message.data()) + kHead, message.size() - kHead});
  return record;
}

std::optional<LogLevel> log_level_named(const std::string& name) {
  if (name == "off") return std::nullopt;
  if (name == "debug") return LogLevel::kDebug;
  if (name == "info") return LogLevel::kInfo;
  if (name == "warning") return LogLevel::kWarning;
  if (name == "error") return LogLevel::kError;
  throw std::invalid_argument("log level '" + name + "'; expected one of: debug, info, warning, error, off");
}

std::string log_name(const std::string& board) { return board.substr(0, board.rfind('.')) + ".log"; }

WorkerLog::WorkerLog(const std::string& board, int worker, const std::string& level) noexcept
    : worker_(worker) {
  try {
    const std::optional<LogLevel> lowest = log_level_named(level);
    if (!lowest) return;
    lowest_ = *lowest;
    queue_ = MessageQueue::attach(log_name(board), Deadline::in(kAttachTimeout));
  } catch (const std::exception&) {
    queue_.reset();  // the run goes on without
  }
}

void WorkerLog::say(LogLevel level, std::string_view text) noexcept {
  if (!keeps(level)) return;
  try {
    const std::string bytes = encode_record({worker_, static_cast<int>(level), now_s(), std::string(text)});
    queue_->try_put(std::as_bytes(std::span(bytes)));
  } catch (const std::exception&) {
    // No memory for a line of the log: the worker's own work will tell.
  }
}

// Opened at the first line; a file that cannot be written is given up, and the reason kept.
struct RunLog::File {
  explicit File(std::string the_path) : path(std::move(the_path)) {}
  ~File() {
    if (file != nullptr) std::fclose(file);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  void write(const std::string& line) {
    if (!error.empty()) return;
    if (file == nullptr) file = std::fopen(path.c_str(), "ae");
    if (file == nullptr || std::fwrite(line.data(), 1, line.size(), file) != line.size()) give_up();
  }
  void flush() {
    if (error.empty() && file != nullptr && std::fflush(file) != 0) give_up();
  }
  void give_up() { error = " is no longer written: " + std::string(std::strerror(errno)); }

  const std::string path;
  std::FILE* file = nullptr;
  std::string error;
  bool told = false;
};

RunLog::RunLog(const std::string& board, const std::string& folder, const std::string& level)
    : file_(std::make_unique<File>(folder + "/log.txt")),
      next_look_(Clock::now()),
      next_tell_(next_look_),
      filled_(next_look_) {
  if (!log_level_named(level)) return;
  MessageQueueOptions options;
  options.max_size_bytes = kQueueBytes;
  options.overflow = Overflow::kDropOldest;
  queue_ = MessageQueue::create(log_name(board), options);
}

RunLog::~RunLog() = default;

void RunLog::take(const Show& show) {
  if (!queue_) return;
  const auto now = Clock::now();
  if (now < next_look_) return;
  next_look_ = now + kInterval;
  if (queue_->size() > 0) {
    take_some(show);
    file_->flush();
    tell_error(show);
  }
  if (unshown_ > 0 && now >= next_tell_) tell_unshown(show);
}

void RunLog::finish(const Show& show) {
  // No more than a full queue twice over: whoever is still writing does not hold up the end.
  if (queue_) {
    for (std::uint64_t taken = 0; taken < 2 * kQueueBytes && take_some(show); taken += kAtOnce) {
    }
  }
  if (unshown_ > 0) tell_unshown(show);
  if (const std::uint64_t lost = dropped(); lost > 0) {
    warn(std::to_string(lost) +
             (lost == 1 ? " line that workers said was" : " lines that workers said were") +
             " dropped: they came faster than log.txt is written; see log.workers_level",
         show);
  }
  file_->flush();
  tell_error(show);
}

// False: there was nothing.
bool RunLog::take_some(const Show& show) {
  MessageBuffer records;
  const auto outcome = queue_->get_many(1'000'000, kAtOnce, records, Deadline::now());
  if (outcome != Outcome::kOk) {
    if (outcome == Outcome::kTimedOut && queue_->size() > 0) next_look_ = Clock::now() + kLater;
    return false;
  }
  for (std::size_t i = 0; i < records.size(); ++i) {
    const std::optional<LogRecord> record = decode_record(records[i]);
    if (!record) continue;
    file_->write(line_of(record->time, record->level, who(record->worker), record->text));
    if (record->level >= static_cast<int>(LogLevel::kWarning)) show_some(*record, show);
  }
  tell_error(show);
  return true;
}

// Once: the run goes on without its log.
void RunLog::tell_error(const Show& show) {
  if (!file_->error.empty() && !std::exchange(file_->told, true)) warn(path() + file_->error, show);
}

void RunLog::show_some(const LogRecord& record, const Show& show) {
  const auto now = Clock::now();
  const double passed = std::chrono::duration<double>(now - filled_).count();
  filled_ = now;
  may_show_ = std::min<double>(kShown, may_show_ + passed * kShownPerSecond);
  if (may_show_ < 1) {
    ++unshown_;
    return;
  }
  may_show_ -= 1;
  if (show) show(record.level, who(record.worker) + ": " + record.text);
}

void RunLog::tell_unshown(const Show& show) {
  next_tell_ = Clock::now() + kTellInterval;
  const std::int64_t count = std::exchange(unshown_, 0);
  if (!show) return;
  show(static_cast<int>(LogLevel::kWarning),
       std::to_string(count) + (count == 1 ? " more line" : " more lines") + " from workers in " + path());
}

void RunLog::warn(const std::string& text, const Show& show) {
  note(LogLevel::kWarning, text);
  if (show) show(static_cast<int>(LogLevel::kWarning), text);
}

void RunLog::note(LogLevel level, std::string_view text) {
  file_->write(line_of(now_s(), static_cast<int>(level), "run", printable(text)));
  file_->flush();
}

std::uint64_t RunLog::dropped() const { return queue_ ? queue_->statistics().dropped : 0; }
const std::string& RunLog::path() const { return file_->path; }

}  // namespace gristmill
