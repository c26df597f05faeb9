#include "rollout/loader_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gristmill {
namespace {

TEST(LoaderCheckTest, NamesTheLibrariesThatAreNotFound) {
  EXPECT_THAT(missing_libraries(NEEDS_ABSENT_LIBRARY, {}),
              testing::ElementsAre(testing::StartsWith("libabsent_library")));
}

TEST(LoaderCheckTest, FindsNothingMissingInWhatCanBeStarted) {
  EXPECT_THAT(missing_libraries(SCRIPTED_WORKER, {}), testing::IsEmpty());
}

TEST(LoaderCheckTest, RunsNoScriptAndNoProgramThatIsNotThere) {
  EXPECT_THAT(missing_libraries("/nowhere/worker", {}), testing::IsEmpty());
  EXPECT_THAT(missing_libraries("/etc/hostname", {}), testing::IsEmpty());
}

}  // namespace
}  // namespace gristmill
