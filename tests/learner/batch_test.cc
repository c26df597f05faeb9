#include "learner/batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/learner/batch_fixture.h"

namespace gristmill {
namespace {

using testing::ElementsAre;

TEST(BatchTest, ASliceIsAViewOfTheSameMemory) {
  MadeUpBatch batch(one_number(), 4, 3);
  batch.data<float>(kRewards)[2 * 3 + 1] = 7;
  const BatchView slice = batch.view().slice(2, 2);
  EXPECT_EQ(slice.trajectories, 2);
  EXPECT_EQ(slice.field<float>(kRewards).size(), 6U);
  EXPECT_EQ(slice.field<float>(kRewards)[1], 7);
  EXPECT_EQ(slice.fields[kObservations], batch.view().fields[kObservations] + 2 * 4 * sizeof(float));
}

TEST(BatchTest, LeavesOutTrajectoriesOlderThanTheOldestVersionAllowed) {
  MadeUpBatch batch(one_number(), 4, 1);
  const std::int64_t versions[] = {5, 3, 4, 9};
  std::copy_n(versions, 4, batch.data<std::int64_t>(kVersion));
  EXPECT_THAT(choose_rows(batch.view(), 4, false), ElementsAre(0, 2, 3));
  EXPECT_THAT(choose_rows(batch.view(), 3, false), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(choose_rows(batch.view(), 10, false), ElementsAre());
}

TEST(BatchTest, OrderedRowsGoByWorkerAndEnvironmentWhoeverCameFirst) {
  MadeUpBatch batch(one_number(), 4, 1);
  const std::int32_t workers[] = {1, 0, 1, 0};
  const std::int32_t slots[] = {1, 1, 0, 0};
  std::copy_n(workers, 4, batch.data<std::int32_t>(kWorker));
  std::copy_n(slots, 4, batch.data<std::int32_t>(kSlot));
  EXPECT_THAT(choose_rows(batch.view(), 0, true), ElementsAre(3, 1, 2, 0));
}

TEST(BatchTest, GathersTheChosenRowsOfEveryField) {
  MadeUpBatch batch(one_number(), 3, 2);
  for (int i = 0; i < 9; ++i) batch.data<float>(kObservations)[i] = static_cast<float>(i);
  for (int i = 0; i < 3; ++i) batch.data<std::int32_t>(kSlot)[i] = 10 + i;
  GatheredBatch gathered;
  const std::vector<std::int64_t> rows{2, 0};
  gathered.gather(batch.view(), rows);
  EXPECT_THAT(gathered.view().field<float>(kObservations), ElementsAre(6, 7, 8, 0, 1, 2));
  EXPECT_THAT(gathered.view().field<std::int32_t>(kSlot), ElementsAre(12, 10));
}

TEST(BatchTest, OnlyTheWholeBatchInItsOwnOrderNeedsNoGathering) {
  const std::vector<std::int64_t> all{0, 1, 2}, swapped{1, 0, 2};
  EXPECT_TRUE(is_identity(all, 3));
  EXPECT_FALSE(is_identity(all, 4));
  EXPECT_FALSE(is_identity(swapped, 3));
}

}  // namespace
}  // namespace gristmill
