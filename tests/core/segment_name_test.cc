#include "core/segment_name.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "tests/core/forked.h"
#include "tests/core/segment_fixture.h"

namespace gristmill {
namespace {

using namespace segment_test;

TEST(Segment, NamesThatTheSweeperCouldNotJudgeAreRefused) {
  const std::string good = fresh_name();
  const std::string mine = good.substr(0, good.find(".segment-test"));
  for (const std::string& name :
       {std::string("/foo"), std::string(""), good.substr(1), mine, mine + ".run", mine + ".run.a/b",
        mine + ".run.a b", mine + ".r\u00fcn.a", mine + ".run." + std::string(250, 'x'),
        std::string("/gristmill.x-1-1.run.part"), std::string("/gristmill.0-1-1.run.part")}) {
    EXPECT_THROW(Segment::create(name, kKind, kLayout, 100), std::invalid_argument) << name;
    EXPECT_THROW(attach(name), std::invalid_argument) << name;
  }
  EXPECT_THROW(segment_name("a b", "part"), std::invalid_argument);
  EXPECT_THROW(segment_name("run", ""), std::invalid_argument);
  EXPECT_THROW(segment_name(std::string(250, 'r'), "part"), std::invalid_argument);
}

TEST(Segment, ANameOfAnotherProcessCannotBeCreatedUnder) {
  const std::string name = fresh_name();
  Forked child([&] {
    try {
      Segment::create(name, kKind, kLayout, 100);
    } catch (const std::invalid_argument&) {
      return 0;
    }
    return 1;
  });
  EXPECT_TRUE(child.succeeds());
}

}  // namespace
}  // namespace gristmill
