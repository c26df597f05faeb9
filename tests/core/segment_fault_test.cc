// A creator is killed between any two of its steps: the sweeper removes what is left.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>

#include "core/fault_point.h"
#include "core/segment.h"
#include "tests/core/forked.h"

#ifdef GRISTMILL_FAULT_POINTS

namespace gristmill {
namespace {

void create_one(const std::string& name) {
  Segment segment = Segment::create(name, SegmentKind::kBox, 1, 100'000);
  segment.mark_ready();
}

TEST(SegmentFault, ACreatorKilledAtAnyPointLeavesWhatTheSweeperRemoves) {
  fault::start_recording();
  create_one(segment_name("segment-fault-test", "recorded"));
  const auto points = fault::stop_recording();
  ASSERT_GE(points.size(), 5u);
  struct Name {
    char text[256] = {};
  };
  for (const std::string& point : points) {
    SharedWithChildren<Name> name;
    Forked creator([&] {
      const std::string mine = segment_name("segment-fault-test", "killed");
      std::strcpy(name->text, mine.c_str());
      fault::arm(point, fault::Action::kKill);
      create_one(mine);
      return 0;
    });
    ASSERT_TRUE(creator.dies_of(SIGKILL)) << point;
    const std::string path = std::string("/dev/shm") + name->text;
    EXPECT_EQ(::access(path.c_str(), F_OK), 0) << point;
    try {
      Segment::attach(name->text, SegmentKind::kBox, 1, Deadline::never());
      ADD_FAILURE() << "attached to what was never finished: " << point;
    } catch (const SegmentError& error) {
      EXPECT_EQ(error.reason(), SegmentError::Reason::kNotReady) << point;
    }
    sweep_segments();
    EXPECT_NE(::access(path.c_str(), F_OK), 0) << point;
  }
}

}  // namespace
}  // namespace gristmill

#endif
