#include "core/lease_table.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

#include "tests/core/forked.h"

namespace gristmill {
namespace {

struct Leases {
  static constexpr int kCount = 4;
  Lease leases[kCount];
  std::atomic<int> phase{0};

  LeaseTable table() { return LeaseTable(leases, kCount); }
};

// The identity of a process that has ended.
std::uint64_t dead_process() {
  SharedWithChildren<std::atomic<std::uint64_t>> word;
  Forked child([&] {
    word->store(ProcessIdentity::self().pack());
    return 0;
  });
  EXPECT_TRUE(child.succeeds());
  return word->load();
}

TEST(LeaseTable, GivesEachLeaseOnceUntilItIsReleased) {
  Leases shared;
  const LeaseTable table = shared.table();
  std::set<int> held;
  for (int i = 0; i < Leases::kCount; ++i) held.insert(table.claim(false));
  EXPECT_EQ(held, (std::set<int>{0, 1, 2, 3}));
  EXPECT_EQ(table.claim(false), -1);
  EXPECT_EQ(table.claim(true), -1);
  shared.leases[2].value.store(7);
  table.release(2);
  EXPECT_EQ(shared.leases[2].value.load(), 0u);
  EXPECT_EQ(table.claim(false), 2);
}

TEST(LeaseTable, SearchesFromTheHintAndWrapsAround) {
  Leases shared;
  const LeaseTable table = shared.table();
  EXPECT_EQ(table.claim(false, 3), 3);
  EXPECT_EQ(table.claim(false, 3), 0);
  EXPECT_EQ(table.claim(false, 1001), 1);
  EXPECT_EQ(table.claim(false, -5), 2);
}

TEST(LeaseTable, AnEmptyTableHasNothingToGive) { EXPECT_EQ(LeaseTable().claim(true), -1); }

TEST(LeaseTable, ADeadOwnersLeaseIsReclaimedOnlyOnRequestAndItsValueCleared) {
  Leases shared;
  const LeaseTable table = shared.table();
  for (Lease& lease : shared.leases) lease.owner.store(ProcessIdentity::self().pack());
  shared.leases[1].owner.store(dead_process());
  shared.leases[1].value.store(99);
  EXPECT_TRUE(table.dead(1));
  EXPECT_FALSE(table.dead(0));
  EXPECT_EQ(table.claim(false), -1);
  EXPECT_EQ(table.claim(true), 1);
  EXPECT_EQ(shared.leases[1].value.load(), 0u);
  EXPECT_EQ(shared.leases[1].owner.load(), ProcessIdentity::self().pack());
}

TEST(LeaseTable, AFreeLeaseIsPreferredToADeadOwners) {
  Leases shared;
  shared.leases[0].owner.store(dead_process());
  shared.leases[0].value.store(99);
  EXPECT_EQ(shared.table().claim(true), 1);
  EXPECT_EQ(shared.leases[0].value.load(), 99u);
}

TEST(LeaseTable, AStoppedProcessKeepsWhatItHas) {
  SharedWithChildren<Leases> shared;
  Forked holder([&] {
    for (int i = 0; i < Leases::kCount; ++i) shared->table().claim(false);
    ::raise(SIGSTOP);
    return 0;
  });
  ASSERT_TRUE(holder.wait_stopped());
  EXPECT_EQ(shared->table().claim(true), -1);
  holder.kill();
  EXPECT_NE(shared->table().claim(true), -1);
}

TEST(LeaseTable, ThreadsNeverHoldTheSameLeaseAtOnce) {
  Leases shared;
  std::atomic<int> holders[Leases::kCount] = {};
  std::atomic<bool> doubled{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 10'000; ++i) {
        const int index = shared.table().claim(false, t);
        if (index < 0) continue;
        if (holders[index].fetch_add(1) != 0) doubled = true;
        holders[index].fetch_sub(1);
        shared.table().release(index);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(doubled.load());
}

TEST(LeaseTable, ProcessesThatReclaimTheSameDeadOwnersNeverGetTheSameLease) {
  for (int round = 0; round < 20; ++round) {
    SharedWithChildren<Leases> shared;
    const std::uint64_t dead = dead_process();
    for (Lease& lease : shared->leases) lease.owner.store(dead);
    const auto claim_two = [&] {
      const int first = shared->table().claim(true);
      const int second = shared->table().claim(true);
      if (first < 0 || second < 0) return 1;
      shared->phase.fetch_add(1 << (4 * first));
      shared->phase.fetch_add(1 << (4 * second));
      return eventually([&] { return shared->phase.load() == 0x1111; }) ? 0 : 2;
    };
    Forked one(claim_two);
    Forked two(claim_two);
    ASSERT_TRUE(one.succeeds());
    ASSERT_TRUE(two.succeeds());
  }
}

}  // namespace
}  // namespace gristmill
