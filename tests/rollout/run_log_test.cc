#include "rollout/run_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/segment.h"

namespace gristmill {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

constexpr int kWarning = static_cast<int>(LogLevel::kWarning);

class RunLogTest : public testing::Test {
 protected:
  RunLogTest() { fs::create_directories(folder_); }
  ~RunLogTest() override { fs::remove_all(folder_); }

  std::string written() const {
    std::ifstream file(folder_ / "log.txt");
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  RunLog::Show show() {
    return [this](int level, const std::string& text) { shown_.emplace_back(level, text); };
  }

  const std::string board_ = segment_name("run-log-test", "board");
  const fs::path folder_ = fs::temp_directory_path() / ("gristmill-run-log-" + std::to_string(::getpid()));
  std::vector<std::pair<int, std::string>> shown_;
};

TEST_F(RunLogTest, WhatWorkersSayIsWrittenAndWarningsAreShown) {
  RunLog log(board_, folder_.string(), "info");
  WorkerLog first(board_, 0, "info");
  WorkerLog second(board_, 7, "info");
  first.say(LogLevel::kInfo, "begins");
  second.say(LogLevel::kWarning, "two\nlines");
  first.say(LogLevel::kDebug, "too fine");
  log.note(LogLevel::kInfo, "of the run");
  log.finish(show());
  EXPECT_THAT(written(), testing::MatchesRegex(".* INFO run: of the run\n"
                                               ".* INFO worker 0: begins\n"
                                               ".* WARNING worker 7: two\n    lines\n"));
  EXPECT_THAT(shown_, testing::ElementsAre(testing::Pair(kWarning, "worker 7: two\nlines")));
  EXPECT_EQ(log.dropped(), 0U);
}

TEST_F(RunLogTest, TakesEveryInterval) {
  RunLog log(board_, folder_.string(), "info");
  WorkerLog worker(board_, 0, "info");
  worker.say(LogLevel::kInfo, "first");
  while (written().find("first") == std::string::npos) log.take(show());
  worker.say(LogLevel::kInfo, "second");
  while (written().find("second") == std::string::npos) log.take(show());
}

TEST_F(RunLogTest, AFloodIsDroppedCountedToldAndShownInPart) {
  RunLog log(board_, folder_.string(), "info");
  WorkerLog worker(board_, 3, "info");
  constexpr int kLines = 50'000;
  for (int i = 0; i < kLines; ++i) worker.say(LogLevel::kWarning, "line " + std::to_string(i));
  log.finish(show());
  EXPECT_GT(log.dropped(), 0U);
  EXPECT_THAT(written(), HasSubstr("worker 3: line " + std::to_string(kLines - 1) + "\n"));
  EXPECT_THAT(written(), Not(HasSubstr("worker 3: line 0\n")));
  EXPECT_THAT(written(), HasSubstr(std::to_string(log.dropped()) + " lines that workers said were dropped"));
  // The dropped ones, and those not shown, are told: one line each.
  ASSERT_GT(shown_.size(), 2U);
  EXPECT_LT(shown_.size(), 1000U);
  EXPECT_THAT(shown_.back().second, HasSubstr("were dropped"));
  EXPECT_THAT(shown_[shown_.size() - 2].second, HasSubstr(" more lines from workers in " + log.path()));
}

TEST_F(RunLogTest, OffTakesNothing) {
  RunLog log(board_, folder_.string(), "off");
  WorkerLog worker(board_, 0, "off");
  WorkerLog late(board_, 1, "info");  // there is no queue
  EXPECT_FALSE(worker.keeps(LogLevel::kError));
  EXPECT_FALSE(late.keeps(LogLevel::kError));
  worker.say(LogLevel::kError, "unheard");
  late.say(LogLevel::kError, "unheard");
  log.take(show());
  log.finish(show());
  EXPECT_FALSE(fs::exists(folder_ / "log.txt"));
}

TEST_F(RunLogTest, AWorkerKilledWhileItLogsDisturbsNobody) {
  RunLog log(board_, folder_.string(), "info");
  for (int round = 0; round < 10; ++round) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      WorkerLog worker(board_, 1, "info");
      for (std::int64_t i = 0;; ++i) worker.say(LogLevel::kInfo, "on and on " + std::to_string(i));
    }
    const std::string before = written();
    while (written() == before) log.take(show());
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    WorkerLog(board_, 2, "info").say(LogLevel::kInfo, "after round " + std::to_string(round));
    log.finish(show());
    EXPECT_THAT(written(), HasSubstr("worker 2: after round " + std::to_string(round) + "\n"));
  }
}

TEST_F(RunLogTest, AFileThatCannotBeWrittenIsToldOnceAndEndsNothing) {
  fs::create_directory(folder_ / "log.txt");
  RunLog log(board_, folder_.string(), "info");
  WorkerLog worker(board_, 0, "info");
  worker.say(LogLevel::kInfo, "one");
  log.finish(show());
  worker.say(LogLevel::kWarning, "two");
  log.finish(show());
  ASSERT_EQ(shown_.size(), 2U);
  EXPECT_THAT(shown_[0].second, HasSubstr("log.txt is no longer written: "));
  EXPECT_EQ(shown_[1].second, "worker 0: two");
}

TEST_F(RunLogTest, AFullDiskIsToldOnceAndEndsNothing) {
  fs::create_symlink("/dev/full", folder_ / "log.txt");
  RunLog log(board_, folder_.string(), "info");
  WorkerLog worker(board_, 0, "info");
  for (int i = 0; i < 3; ++i) {
    worker.say(LogLevel::kInfo, "one more");
    log.finish(show());
  }
  ASSERT_EQ(shown_.size(), 1U);
  EXPECT_THAT(shown_[0].second, HasSubstr("log.txt is no longer written: No space left on device"));
}

std::string decoded(const std::string& text) {
  const std::string bytes = encode_record({1, 20, 1e9, text});
  return decode_record(std::as_bytes(std::span(bytes)))->text;
}

TEST(LogRecords, AreMadePrintable) {
  EXPECT_EQ(decoded("plain"), "plain");
  EXPECT_EQ(decoded("tab\tand\nline\n"), "tab\tand\nline");
  EXPECT_EQ(decoded("Grüße, 世界 🎉"), "Grüße, 世界 🎉");
  EXPECT_EQ(decoded("\x1b[33mWARN\x1b[0m: \x1b]x\a\x1b"), "WARN: ]x?");
  EXPECT_EQ(decoded("\x1b[31"), "");
  EXPECT_EQ(decoded(std::string("nul\0", 4)), "nul?");
  EXPECT_EQ(decoded("\xff\xc0\xaf\xed\xa0\x80\xf5\xe2\x82"), "?????????");
  EXPECT_EQ(decoded("dos\r\nends\r"), "dos\nends");
  EXPECT_EQ(decoded(std::string(2 * kLongestRecord, 'x')).size(), kLongestRecord);
}

TEST(LogRecords, WhatIsNoneIsRefused) {
  const auto refused = [](const std::string& bytes) {
    return !decode_record(std::as_bytes(std::span(bytes))).has_value();
  };
  EXPECT_TRUE(refused(""));
  EXPECT_TRUE(refused("too short"));
  EXPECT_TRUE(refused(encode_record({-1, 20, 0, ""})));
  EXPECT_TRUE(refused(encode_record({0, -20, 0, ""})));
  EXPECT_TRUE(refused(encode_record({0, 20, -1, ""})));
  EXPECT_TRUE(refused(encode_record({0, 20, 1e300, ""})));
  EXPECT_TRUE(refused(encode_record({0, 20, std::numeric_limits<double>::quiet_NaN(), ""})));
  EXPECT_FALSE(refused(encode_record({0, 20, 0, ""})));
}

}  // namespace
}  // namespace gristmill
