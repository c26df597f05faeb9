// A segment that another process cuts short while it is in use: a typed error at once, never a signal.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>

#include "core/box.h"
#include "core/run_board.h"
#include "tests/core/forked.h"
#include "tests/core/message_fixture.h"
#include "tests/core/trajectory_fixture.h"

namespace gristmill {
namespace {

using namespace std::chrono_literals;

void cut(const std::string& name, off_t bytes) {
  const int fd = ::shm_open(name.c_str(), O_RDWR, 0600);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::ftruncate(fd, bytes), 0);
  ::close(fd);
}

// Cuts what `make` makes to every length, from all but the last page to nothing; each in a process of its
// own, so that a signal is a failure.
template <class Make, class Body>
void at_every_length(Make make, Body body) {
  off_t pages = 1;
  for (off_t cut_off = 1; cut_off <= pages; cut_off += std::max<off_t>(1, pages / 30)) {
    const auto made = make();
    struct stat status {};
    ASSERT_EQ(::stat(("/dev/shm" + made->name()).c_str(), &status), 0);
    pages = (status.st_size + 4095) / 4096;
    Forked victim([&] {
      ::alarm(30);  // a hang is a failure, too
      return body(*made, (pages - cut_off) * 4096);
    });
    const int ended = victim.wait();
    ASSERT_TRUE(WIFEXITED(ended) && WEXITSTATUS(ended) == 0)
        << cut_off << " of " << pages << " pages cut off: ended with " << ended;
  }
}

TEST(ShrunkSegment, AMessageQueuesCallsAreBroken) {
  const auto make = [] { return fresh_message_queue(std::uint64_t{1} << 16); };
  at_every_length(make, [](MessageQueue& queue, off_t left) {
    using Outcome = MessageQueue::Outcome;
    for (std::uint64_t tag = 0; tag < 5; ++tag) {
      if (put_tag(queue, tag) != Outcome::kOk) return 1;
    }
    cut(queue.name(), left);
    // What can still be done is done whole; the first to touch what is gone says so, and all after it.
    Outcome outcome = Outcome::kOk;
    for (std::uint64_t tag = 5; tag < 50 && outcome != Outcome::kBroken; ++tag) {
      outcome = put_tag(queue, tag);
      MessageBuffer buffer;
      if (outcome != Outcome::kBroken)
        outcome = queue.get_many(9, MessageQueue::kNoLimit, buffer, Deadline::now());
      for (std::size_t i = 0; i < buffer.size(); ++i) {
        if (!tag_of(buffer[i])) return 2;
      }
    }
    if (outcome != Outcome::kBroken) return 3;
    MessageBuffer buffer;
    return queue.get(buffer, Deadline::never()) == Outcome::kBroken &&
                   queue.take(1, 1, Deadline::never()).outcome == Outcome::kBroken &&
                   queue.reserve(5000, Deadline::never()).outcome == Outcome::kBroken &&
                   put_tag(queue, 1, Deadline::never()) == Outcome::kBroken
               ? 0
               : 4;
  });
}

TEST(ShrunkSegment, ATrajectoryQueuesCallsAreBroken) {
  at_every_length([] { return fresh_queue(4); },
                  [](TrajectoryQueue& queue, off_t left) {
                    using Outcome = TrajectoryQueue::Outcome;
                    cut(queue.name(), left);
                    Outcome outcome = Outcome::kOk;
                    for (std::uint64_t tag = 0; tag < 40 && outcome == Outcome::kOk; ++tag) {
                      outcome = Grist(tag, 1).put(queue, Deadline::in(10s)).outcome;
                      if (outcome != Outcome::kOk) break;
                      const auto got = queue.get_many(1, Deadline::in(10s));
                      outcome = got.outcome;
                      // In place: what is gone by now would be zeros. Here nothing is cut after the put.
                      if (outcome == Outcome::kOk && !Grist::tags(got.batch)) return 1;
                    }
                    // The end of a ring that is longer than the capacity is never touched.
                    if (outcome == Outcome::kOk) return left > 34 * 4096 ? 0 : 2;
                    if (outcome != Outcome::kBroken) return 3;
                    return queue.get_many(1, Deadline::never()).outcome == Outcome::kBroken &&
                                   Grist(1, 1).put(queue, Deadline::never()).outcome == Outcome::kBroken
                               ? 0
                               : 4;
                  });
}

TEST(ShrunkSegment, ABoxIsBrokenToWritersAndSaysSoToReaders) {
  static const FieldSpecs kArrays{{"a", DType::kFloat32, {5000}}};
  const auto make = [] {
    static int number = 0;
    return Box::create(segment_name("shrunk-test", "box" + std::to_string(number++)), kArrays,
                       {{"n", ScalarType::kInt64, 0}});
  };
  at_every_length(make, [](Box& box, off_t left) {
    const std::vector<float> values(5000, 1.5F);
    const auto* const from = reinterpret_cast<const std::byte*>(values.data());
    cut(box.name(), left);
    Box::PublishOutcome outcome = Box::PublishOutcome::kOk;
    for (int i = 0; i < 2 * Box::kSlots && outcome == Box::PublishOutcome::kOk; ++i) {
      outcome = box.publish({&from, 1}, Deadline::in(10s)).outcome;
    }
    if (outcome != Box::PublishOutcome::kBroken) return 1;
    std::vector<float> out(5000);
    auto* const to = reinterpret_cast<std::byte*>(out.data());
    int refused = 0;
    const auto refuses = [&](auto call) {
      try {
        call();
      } catch (const std::runtime_error& error) {
        refused += std::string(error.what()).find("cut its shared memory short") != std::string::npos;
      }
    };
    refuses([&] { box.read_int(0); });
    refuses([&] { box.read_into({&to, 1}); });
    refuses([&] { box.pin(); });
    refuses([&] { box.watch(std::uint64_t{1} << 40, Deadline::never()); });
    return refused == 4 ? 0 : 2;
  });
}

TEST(ShrunkSegment, ABoxIsNoSignalToWhoOnlyReads) {
  static const FieldSpecs kArrays{{"a", DType::kFloat32, {5000}}};
  const auto make = [] {
    static int number = 0;
    return Box::create(segment_name("shrunk-test", "read" + std::to_string(number++)), kArrays);
  };
  at_every_length(make, [](Box& box, off_t left) {
    const auto reader = Box::attach(box.name(), Deadline::now(), Box::Access::kReadOnly);
    std::vector<float> out(5000);
    auto* const to = reinterpret_cast<std::byte*>(out.data());
    cut(box.name(), left);
    try {
      reader->read_into({&to, 1});
    } catch (const std::runtime_error&) {
      return 0;
    }
    // The newest slot, the first, was read whole; it is said to be gone only when it is.
    return left >= static_cast<off_t>(Box::bytes_needed(kArrays) - 3 * 5 * 4096) ? 0 : 1;
  });
}

TEST(ShrunkSegment, ARunBoardIsReadAsEmptyAndEndsNothing) {
  const auto make = [] {
    static int number = 0;
    return RunBoard::create(segment_name("shrunk-test", "board" + std::to_string(number++)), 3);
  };
  at_every_length(make, [](RunBoard& shared, off_t left) {
    RunBoard* const board = &shared;
    board->set_config("seed: 1\n");
    cut(board->name(), left);
    for (int i = 0; i < board->rows(); ++i) {
      RunBoard::Row row = board->row(i);
      row.enter();
      row.set_description("{}");
      row.set_error("error");
      row.set_phase(Phase::kFailed);
      row.phase();
      row.description();
    }
    board->config();
    board->request_stop();
    return board->stop_requested() && !board->await_ready(Deadline::in(10ms)) ? 0 : 1;
  });
}

TEST(ShrunkSegment, IsATypedErrorToWhoAttaches) {
  const auto queue = fresh_message_queue(std::uint64_t{1} << 14);
  const std::string name = queue->name();
  std::array<int, 3> ended{};
  // While another process cuts and grows it all the time, the header always whole.
  Forked cutter([&] {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int fd = ::shm_open(name.c_str(), O_RDWR, 0600);
    struct stat status {};
    ::fstat(fd, &status);
    while (true) {
      if (::ftruncate(fd, 4096) != 0 || ::ftruncate(fd, status.st_size) != 0) return 1;
    }
  });
  Forked reader([&] {
    ::alarm(100);
    for (int i = 0; i < 3000; ++i) {
      try {
        const auto attached = MessageQueue::attach(name, Deadline::now());
        ++ended[0];
      } catch (const SegmentError& error) {
        ++ended[error.reason() == SegmentError::Reason::kCorrupt ? 1 : 2];
      }
    }
    return ended[1] > 0 && ended[2] == 0 ? 0 : 1;
  });
  EXPECT_TRUE(reader.succeeds());
}

}  // namespace
}  // namespace gristmill
