#include "core/run_board.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "core/fault_point.h"
#include "core/segment.h"
#include "core/shared_text.h"
#include "core/stage_clock.h"
#include "tests/core/forked.h"

namespace gristmill {
namespace {

using namespace std::chrono_literals;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

std::unique_ptr<RunBoard> make_board(int rows = 3) {
  static int number = 0;
  return RunBoard::create(segment_name("run-board-test", "board" + std::to_string(number++)), rows);
}

TEST(RunBoard, BeginsEmptyNeitherReadyNorStopped) {
  const auto board = make_board();
  EXPECT_EQ(board->rows(), 3);
  EXPECT_EQ(board->owner(), ProcessIdentity::self());
  EXPECT_EQ(board->config(), "");
  EXPECT_FALSE(board->stop_requested());
  EXPECT_FALSE(board->await_ready(Deadline::in(10ms)));
  EXPECT_EQ(board->changes(), 0u);
  const RunBoard::Row row = board->row(2);
  EXPECT_EQ(row.phase(), Phase::kEmpty);
  EXPECT_EQ(row.identity(), ProcessIdentity{});
  EXPECT_EQ(row.get(Counter::kFrames), 0u);
  EXPECT_EQ(row.description(), "");
  EXPECT_EQ(row.error(), "");
}

TEST(RunBoard, RefusesNoRowsAndRowsThatAreNotThere) {
  EXPECT_THROW(make_board(0), std::invalid_argument);
  const auto board = make_board();
  EXPECT_THROW(board->row(3), std::out_of_range);
  EXPECT_THROW(board->row(-1), std::out_of_range);
}

TEST(RunBoard, ShowsAnotherProcessWhatARowsProcessWrote) {
  const auto board = make_board();
  board->row(1).prepare(4);
  Forked worker([&] {
    const auto mine = RunBoard::attach(board->name(), Deadline::in(10s));
    RunBoard::Row row = mine->row(1);
    row.enter();
    row.set_description("{\"a\": 1}");
    row.set_phase(Phase::kDescribed);
    for (int i = 0; i < 1000; ++i) row.add(Counter::kFrames, 3);
    row.set(Counter::kVersion, 17);
    row.set_phase(Phase::kRunning);
    return 0;
  });
  const ProcessIdentity identity{worker.pid(), 0};
  ASSERT_TRUE(worker.succeeds());
  const RunBoard::Row row = board->row(1);
  EXPECT_EQ(row.phase(), Phase::kRunning);
  EXPECT_EQ(row.incarnation(), 4);
  EXPECT_EQ(row.identity().pid, identity.pid);
  EXPECT_TRUE(row.identity().proved_dead());
  EXPECT_EQ(row.get(Counter::kFrames), 3000u);
  EXPECT_EQ(row.get(Counter::kVersion), 17u);
  EXPECT_EQ(row.get(Counter::kEpisodes), 0u);
  EXPECT_EQ(row.description(), "{\"a\": 1}");
  EXPECT_TRUE(row.reached(Phase::kDescribed));
  EXPECT_FALSE(row.reached(Phase::kFailed));
  EXPECT_EQ(board->row(0).phase(), Phase::kEmpty);
  EXPECT_EQ(board->row(2).get(Counter::kFrames), 0u);
}

TEST(RunBoard, PreparingARowClearsWhatTheFormerProcessLeft) {
  const auto board = make_board();
  RunBoard::Row row = board->row(0);
  row.prepare(0);
  row.enter();
  row.add(Counter::kEpisodes, 5);
  row.set_description("old");
  row.set_phase(Phase::kRunning);
  row.set_error("old error");
  row.set_phase(Phase::kFailed);
  row.prepare(1);
  EXPECT_EQ(row.phase(), Phase::kStarting);
  EXPECT_EQ(row.incarnation(), 1);
  EXPECT_EQ(row.identity(), ProcessIdentity{});
  EXPECT_EQ(row.get(Counter::kEpisodes), 0u);
  EXPECT_EQ(row.description(), "");
  EXPECT_EQ(row.error(), "");
  EXPECT_FALSE(row.reached(Phase::kRunning));
}

TEST(RunBoard, AHeartbeatEndsTheSilence) {
  const auto board = make_board();
  RunBoard::Row row = board->row(0);
  row.prepare(0);
  ASSERT_TRUE(eventually([&] { return row.since_beat() > 30ms; }));
  const auto silence = row.since_beat();
  const auto before = std::chrono::steady_clock::now();
  row.beat();
  EXPECT_LT(row.since_beat(), silence);
  EXPECT_GE(row.last_beat(), before);
  EXPECT_LE(row.last_beat(), std::chrono::steady_clock::now());
  EXPECT_GE(row.since_beat(), 0ns);
}

TEST(RunBoard, ALongErrorKeepsItsEndAndSaysThatItWasCut) {
  const auto board = make_board();
  RunBoard::Row row = board->row(0);
  std::string traceback = "Traceback (most recent call last):\n";
  while (traceback.size() < 3 * RunBoard::kErrorBytes) traceback += "  File \"env.py\", in stêp\n";
  traceback += "ValueError: the last line matters most";
  row.set_error(traceback);
  const std::string error = row.error();
  EXPECT_LE(error.size(), RunBoard::kErrorBytes);
  EXPECT_GE(error.size(), RunBoard::kErrorBytes - 3);
  EXPECT_THAT(error, StartsWith("[the first of " + std::to_string(traceback.size()) + " bytes are cut]\n"));
  EXPECT_THAT(error, EndsWith("ValueError: the last line matters most"));
  row.set_error("short");
  EXPECT_EQ(row.error(), "short");
}

TEST(RunBoard, ACutNeverBeginsInTheMiddleOfACharacter) {
  const auto board = make_board();
  RunBoard::Row row = board->row(0);
  for (std::size_t shift = 0; shift < 4; ++shift) {
    std::string text(shift, 'x');
    while (text.size() < RunBoard::kErrorBytes + 100) text += "\xF0\x9F\x8C\xBE";  // four bytes each
    row.set_error(text);
    const std::string error = row.error();
    const std::string rest = error.substr(error.find('\n') + 1);
    EXPECT_EQ(rest.size() % 4, 0u);
    EXPECT_EQ(rest.front(), '\xF0');
  }
}

TEST(RunBoard, RefusesADescriptionOrConfigThatDoesNotFitAndKeepsTheOldOne) {
  const auto board = make_board();
  RunBoard::Row row = board->row(0);
  row.set_description(std::string(RunBoard::kDescriptionBytes, 'd'));
  EXPECT_THROW(row.set_description(std::string(RunBoard::kDescriptionBytes + 1, 'e')), std::length_error);
  EXPECT_EQ(row.description(), std::string(RunBoard::kDescriptionBytes, 'd'));
  board->set_config("seed: 1\n");
  EXPECT_THROW(board->set_config(std::string(RunBoard::kTextBytes + 1, 'c')), std::length_error);
  EXPECT_EQ(board->config(), "seed: 1\n");
}

TEST(RunBoard, TextsHoldAnyBytes) {
  const auto board = make_board();
  const std::string bytes("a\0b\xff\n\0", 6);
  board->set_config(bytes);
  EXPECT_EQ(RunBoard::attach(board->name(), Deadline::in(1s))->config(), bytes);
}

TEST(RunBoard, ReadyWakesWhoWaitsForIt) {
  const auto board = make_board();
  Forked worker([&] { return board->await_ready(Deadline::in(30s)) ? 0 : 1; });
  board->announce_ready();
  EXPECT_TRUE(worker.succeeds());
  EXPECT_TRUE(board->await_ready(Deadline::now()));
}

TEST(RunBoard, StopEndsEveryWait) {
  const auto board = make_board();
  Forked for_ready([&] { return board->await_ready(Deadline::in(30s)) ? 1 : 0; });
  Forked for_change([&] { return board->await_change(board->changes(), Deadline::in(30s)) == 0 ? 0 : 1; });
  board->request_stop();
  EXPECT_TRUE(for_ready.succeeds());
  EXPECT_TRUE(for_change.succeeds());
  EXPECT_TRUE(board->stop_requested());
  board->announce_ready();
  EXPECT_FALSE(board->await_ready(Deadline::now()));
}

TEST(RunBoard, APhaseOfAnyRowWakesWhoAwaitsAChange) {
  const auto board = make_board();
  const std::uint32_t seen = board->changes();
  EXPECT_EQ(board->await_change(seen, Deadline::in(10ms)), seen);
  Forked worker([&] {
    board->row(2).set_phase(Phase::kRunning);
    return 0;
  });
  EXPECT_EQ(board->await_change(seen, Deadline::in(30s)), seen + 1);
  EXPECT_EQ(board->row(2).phase(), Phase::kRunning);
  EXPECT_TRUE(worker.succeeds());
}

TEST(RunBoard, AttachRefusesADamagedBoard) {
  for (const std::uint64_t rows : {std::uint64_t{0}, std::uint64_t{2}, std::uint64_t{4}, ~std::uint64_t{0}}) {
    const auto board = make_board(3);
    const int fd = ::shm_open(board->name().c_str(), O_RDWR, 0);
    ASSERT_EQ(::pwrite(fd, &rows, sizeof rows, Segment::kHeaderBytes), 8);
    ::close(fd);
    try {
      RunBoard::attach(board->name(), Deadline::in(1s));
      FAIL() << rows << " rows were accepted";
    } catch (const SegmentError& error) {
      EXPECT_EQ(error.reason(), SegmentError::Reason::kCorrupt);
      EXPECT_THAT(error.what(), HasSubstr(board->name()));
    }
  }
}

TEST(RunBoard, AnyBytesInARowAreReadableWithoutACrash) {
  const auto board = make_board(1);
  const int fd = ::shm_open(board->name().c_str(), O_RDWR, 0);
  const off_t end = ::lseek(fd, 0, SEEK_END);
  const std::string noise(static_cast<std::size_t>(end - Segment::kHeaderBytes - 64), '\xee');
  ASSERT_EQ(::pwrite(fd, noise.data(), noise.size(), Segment::kHeaderBytes + 64),
            static_cast<ssize_t>(noise.size()));
  ::close(fd);
  const RunBoard::Row row = board->row(0);
  EXPECT_EQ(row.phase(), Phase::kEmpty);
  EXPECT_LE(row.error().size(), RunBoard::kErrorBytes);
  EXPECT_LE(row.description().size(), RunBoard::kDescriptionBytes);
  EXPECT_LE(board->config().size(), RunBoard::kTextBytes);
  EXPECT_GE(row.since_beat(), 0ns);
}

TEST(SharedText, IsNeverAMixtureWhileItIsReplaced) {
  SharedText<256> text;
  std::atomic<bool> done{false};
  std::thread writer([&] {
    for (int i = 0; !done; ++i)
      text.set(std::string(static_cast<std::size_t>(100 + i % 100), static_cast<char>('a' + i % 26)));
  });
  int whole = 0;
  for (int i = 0; i < 20000 || (whole < 100 && i < 10'000'000); ++i) {
    const std::string read = text.get();
    if (read.empty()) continue;
    ++whole;
    ASSERT_EQ(read, std::string(read.size(), read[0]));
    ASSERT_EQ((read.size() - 100) % 2, static_cast<std::size_t>(read[0] - 'a') % 2);
  }
  done = true;
  writer.join();
  EXPECT_GE(whole, 100);
}

TEST(RunBoard, TheLearnersRowIsBesideTheWorkers) {
  const auto board = make_board(2);
  RunBoard::Row learner = board->learner();
  learner.prepare(0);
  learner.enter();
  learner.add(Counter::kUpdates, 3);
  EXPECT_EQ(board->rows(), 2);
  EXPECT_EQ(board->row(1).get(Counter::kUpdates), 0u);
  EXPECT_EQ(RunBoard::attach(board->name(), Deadline::in(1s))->learner().get(Counter::kUpdates), 3u);
}

TEST(RunBoard, TimeSpentInAStageIsInItsCounterAndItsHistogramUntilTheRowIsPrepared) {
  const auto board = make_board();
  RunBoard::Row row = board->row(0);
  row.spend(Measure::kCopy, 1000);
  row.spend(Measure::kCopy, 3000);
  row.record(Measure::kPolicyLag, 2, 7);
  EXPECT_EQ(row.get(Counter::kCopyNs), 4000u);
  EXPECT_EQ(row.histogram(Measure::kCopy)[LogHistogram::bucket_of(3000)], 1u);
  EXPECT_EQ(row.histogram(Measure::kPolicyLag)[2], 7u);
  EXPECT_EQ(row.histogram(Measure::kInference), LogHistogram::Counts{});
  row.prepare(1);
  EXPECT_EQ(row.histogram(Measure::kCopy), LogHistogram::Counts{});
}

TEST(RunBoard, EveryStageHasACounterOfItsOwn) {
  for (std::size_t a = 0; a < kStageCount; ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      EXPECT_NE(counter_of(static_cast<Measure>(a)), counter_of(static_cast<Measure>(b)));
    }
    const std::string counter = kCounterNames[static_cast<std::size_t>(counter_of(static_cast<Measure>(a)))];
    EXPECT_EQ(counter, std::string(kMeasureNames[a]) + "_ns");
  }
}

TEST(RunBoard, SpansOfARowAreReadByAnotherProcessEvenAfterARestart) {
  const auto board = make_board();
  board->row(1).trace({5, 6, Measure::kInference, 7});
  board->row(1).prepare(1);
  board->row(1).trace({8, 9, Measure::kCopy, 10});
  board->learner().trace({1, 1, Measure::kPublish, 1});
  const auto reader = RunBoard::attach(board->name(), Deadline::in(1s), Segment::Access::kReadOnly);
  const TraceRing::Read read = reader->row(1).spans().read(0);
  ASSERT_EQ(read.spans.size(), 2u);
  EXPECT_EQ(read.spans[1].argument, 10u);
  EXPECT_TRUE(reader->row(0).spans().read(0).spans.empty());
  EXPECT_EQ(reader->learner().spans().read(0).spans.size(), 1u);
}

TEST(RunBoard, TracingIsSwitchedOnAndOffWhileTheRunGoesOn) {
  const auto board = make_board();
  const auto profiler = RunBoard::attach(board->name(), Deadline::in(1s));
  EXPECT_FALSE(board->tracing());
  profiler->set_tracing(true);
  EXPECT_TRUE(board->tracing());
  profiler->set_tracing(false);
  EXPECT_FALSE(board->tracing());
}

TEST(RunBoard, RemembersWhenTheLastVersionsWerePublished) {
  const auto board = make_board();
  EXPECT_EQ(board->published_at(1), 0u);
  for (std::uint64_t version = 1; version <= 40; ++version) board->note_publication(version, version * 100);
  EXPECT_EQ(board->published_at(40), 4000u);
  EXPECT_EQ(board->published_at(39), 3900u);
  EXPECT_EQ(board->published_at(2), 0u);
  EXPECT_EQ(board->published_at(41), 0u);
}

TEST(RunBoard, IsReadWithoutWritingToIt) {
  const auto board = make_board();
  board->set_config("seed: 3\n");
  board->row(0).prepare(0);
  board->row(0).enter();
  board->row(0).add(Counter::kFrames, 9);
  const auto reader = RunBoard::attach(board->name(), Deadline::in(1s), Segment::Access::kReadOnly);
  EXPECT_EQ(reader->config(), "seed: 3\n");
  EXPECT_EQ(reader->row(0).get(Counter::kFrames), 9u);
  EXPECT_EQ(reader->row(0).phase(), Phase::kStarting);
  EXPECT_FALSE(reader->tracing());
  EXPECT_EQ(reader->published_at(3), 0u);
}

TEST(StageClock, ChargesTheTimeBetweenTwoChargesToTheLater) {
  const auto board = make_board();
  StageClock clock(*board, board->row(0), true);
  const std::uint64_t begin = clock.last_ns();
  ASSERT_TRUE(eventually([&] { return StageClock::now_ns() > begin + 2'000'000; }));
  clock.charge(Measure::kEnvironment);
  clock.charge(Measure::kInference);
  const RunBoard::Row row = board->row(0);
  EXPECT_GE(row.get(Counter::kEnvironmentNs), 2'000'000u);
  EXPECT_EQ(row.get(Counter::kEnvironmentNs) + row.get(Counter::kInferenceNs), clock.last_ns() - begin);
  EXPECT_EQ(row.spans().end(), 0u);
}

TEST(StageClock, SharesOutWhatWasAnothersAndTracesBoth) {
  const auto board = make_board();
  board->set_tracing(true);
  StageClock clock(*board, board->row(0), true);
  const std::uint64_t begin = clock.last_ns();
  ASSERT_TRUE(eventually([&] { return StageClock::now_ns() > begin + 2'000'000; }));
  clock.charge(Measure::kCopy, 77, Measure::kSpaceWait, 1'500'000);
  EXPECT_EQ(board->row(0).get(Counter::kSpaceWaitNs), 1'500'000u);
  const auto spans = board->row(0).spans().read(0).spans;
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0].begin_ns, begin);
  EXPECT_EQ(spans[1].begin_ns, begin + 1'500'000);
  EXPECT_EQ(spans[1].argument, 77u);
  EXPECT_EQ(spans[1].begin_ns + spans[1].duration_ns, clock.last_ns());
}

TEST(StageClock, SwitchedOffChargesNothing) {
  const auto board = make_board();
  StageClock clock(*board, board->row(0), false);
  clock.charge(Measure::kEnvironment);
  clock.charge(Measure::kCopy, 1, Measure::kSpaceWait, 5);
  EXPECT_EQ(board->row(0).get(Counter::kEnvironmentNs), 0u);
  EXPECT_EQ(board->row(0).histogram(Measure::kCopy), LogHistogram::Counts{});
}

#ifdef GRISTMILL_FAULT_POINTS
TEST(SharedText, OfAKilledWriterIsWholeOrEmptyAndCanBeSetAgain) {
  const SharedWithChildren<SharedText<64>> text;
  for (const char* point : {"text.word", "text.written"}) {
    for (int pass = 1; pass <= (std::string(point) == "text.word" ? 5 : 1); ++pass) {
      ASSERT_TRUE(text->set("the old text"));
      Forked writer([&] {
        fault::arm(point, fault::Action::kKill, pass);
        text->set("the new text, which is a good deal longer");
        return 0;
      });
      ASSERT_TRUE(writer.dies_of(SIGKILL));
      EXPECT_EQ(text->get(), "");
      ASSERT_TRUE(text->set("the next text"));
      EXPECT_EQ(text->get(), "the next text");
    }
  }
}
#endif

}  // namespace
}  // namespace gristmill
