// What the dead left is removed, what the living have or cannot be judged is not.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "tests/core/forked.h"
#include "tests/core/segment_fixture.h"

namespace gristmill {
namespace {

using namespace segment_test;

TEST(Segment, SweepRemovesWhatTheDeadLeftAndNothingElse) {
  struct Name {
    char text[256] = {};
  };
  SharedWithChildren<Name> dead;
  SharedWithChildren<Name> stopped;
  const auto create_and = [](SharedWithChildren<Name>& name, int signal) {
    return [&name, signal] {
      const std::string mine = fresh_name();
      Segment segment = Segment::create(mine, kKind, kLayout, 5000);
      segment.mark_ready();
      std::strcpy(name->text, mine.c_str());
      ::raise(signal);
      return 0;
    };
  };
  const std::string mine = fresh_name();
  const Segment living = Segment::create(mine, kKind, kLayout, 100);
  std::ofstream(path_of("/gristmill.notes.txt")) << "not a segment";
  Forked victim(create_and(dead, SIGKILL));
  ASSERT_TRUE(victim.dies_of(SIGKILL));
  Forked sleeper(create_and(stopped, SIGSTOP));
  ASSERT_TRUE(sleeper.wait_stopped());

  bool listed = false;
  for (const SegmentInfo& segment : list_segments()) {
    if (segment.name == dead->text) {
      listed = segment.dead && segment.judged && segment.bytes == 5000 + Segment::kHeaderBytes;
    }
    if (segment.name == mine) {
      EXPECT_FALSE(segment.dead);
    }
  }
  EXPECT_TRUE(listed);

  bool swept = false;
  for (const SegmentInfo& segment : sweep_segments()) swept |= segment.name == dead->text;
  EXPECT_TRUE(swept);
  EXPECT_FALSE(exists(dead->text));
  EXPECT_TRUE(exists(stopped->text));
  EXPECT_TRUE(exists(mine));
  EXPECT_TRUE(exists("/gristmill.notes.txt"));
  ::shm_unlink("/gristmill.notes.txt");
  sleeper.kill();
  sweep_segments();
  EXPECT_FALSE(exists(stopped->text));
}

TEST(Segment, SweepRemovesAThousandOfManyDeadAtOnce) {
  constexpr int kProcesses = 50;
  constexpr int kEach = 20;
  const std::string mine = fresh_name();
  const Segment living = Segment::create(mine, kKind, kLayout, 100);
  std::vector<Forked> dead;
  for (int i = 0; i < kProcesses; ++i) {
    dead.emplace_back([] {
      std::vector<Segment> segments;
      for (int n = 0; n < kEach; ++n) {
        segments.push_back(Segment::create(fresh_name(), kKind, kLayout, 100));
        if (n % 2 == 0) segments.back().mark_ready();
      }
      ::raise(SIGKILL);
      return 0;
    });
  }
  std::vector<pid_t> pids;
  for (Forked& process : dead) {
    pids.push_back(process.pid());
    ASSERT_TRUE(process.dies_of(SIGKILL));
  }
  const auto left = [&] {
    int count = 0;
    for (const SegmentInfo& segment : list_segments()) {
      count += std::find(pids.begin(), pids.end(), segment.owner.pid) != pids.end();
    }
    return count;
  };
  // A test beside this one may sweep, too.
  EXPECT_LE(left(), kProcesses * kEach);
  sweep_segments();
  EXPECT_EQ(left(), 0);
  EXPECT_TRUE(exists(mine));
}

TEST(Segment, OneOfAnotherPidNamespaceIsRefusedAndNotSwept) {
  std::string name = fresh_name();
  char name_space[32];
  std::snprintf(name_space, sizeof name_space, "-%llx.",
                static_cast<unsigned long long>(identity_namespace()));
  name.replace(name.find(name_space), std::strlen(name_space), "-1.");
  name.replace(name.find("."), name.find("-") - name.find("."), ".4000000");  // no such pid here
  const int fd = ::shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600);
  ASSERT_GE(fd, 0);
  ::close(fd);
  const SegmentError error = error_of([&] { attach(name); });
  EXPECT_EQ(error.reason(), Reason::kNotPermitted);
  EXPECT_THAT(error.what(), testing::HasSubstr("namespace"));
  sweep_segments();
  EXPECT_TRUE(exists(name));
  ::shm_unlink(name.c_str());
}

}  // namespace
}  // namespace gristmill
