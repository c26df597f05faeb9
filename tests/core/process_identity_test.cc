#include "core/process_identity.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <string>
#include <thread>

#include "tests/core/forked.h"

namespace gristmill {
namespace {

TEST(ProcessIdentity, OfTheCallerLivesAndIsTheSameEachTime) {
  const ProcessIdentity self = ProcessIdentity::self();
  EXPECT_EQ(self.pid, ::getpid());
  EXPECT_GT(self.start_time, 0u);
  EXPECT_EQ(ProcessIdentity::self(), self);
  EXPECT_FALSE(self.proved_dead());
}

TEST(ProcessIdentity, SurvivesPackingUpToTheLargestPidAndStartTime) {
  const ProcessIdentity self = ProcessIdentity::self();
  EXPECT_EQ(ProcessIdentity::unpack(self.pack()), self);
  const ProcessIdentity largest{(1 << 22) - 1, (std::uint64_t{1} << 42) - 1};
  EXPECT_EQ(ProcessIdentity::unpack(largest.pack()), largest);
  EXPECT_EQ(ProcessIdentity{}.pack(), 0u);
  EXPECT_EQ(ProcessIdentity::unpack(0), ProcessIdentity{});
}

TEST(ProcessIdentity, IsAnotherInAForkedChild) {
  const ProcessIdentity parent = ProcessIdentity::self();
  Forked child([parent] {
    const ProcessIdentity self = ProcessIdentity::self();
    return self.pid == ::getpid() && self != parent && !parent.proved_dead() ? 0 : 1;
  });
  EXPECT_TRUE(child.succeeds());
}

TEST(ProcessIdentity, OfAKilledProcessIsProvedDeadAsAZombieAndOnceReaped) {
  SharedWithChildren<std::atomic<std::uint64_t>> word;
  Forked child([&] {
    word->store(ProcessIdentity::self().pack());
    while (true) ::pause();
    return 0;
  });
  ASSERT_TRUE(eventually([&] { return word->load() != 0; }));
  const ProcessIdentity identity = ProcessIdentity::unpack(word->load());
  EXPECT_FALSE(identity.proved_dead());
  child.signal(SIGKILL);
  EXPECT_TRUE(eventually([&] { return identity.proved_dead(); })) << "as a zombie";
  child.wait();
  EXPECT_TRUE(identity.proved_dead()) << "once reaped";
}

TEST(ProcessIdentity, OfAStoppedProcessIsNotProvedDead) {
  SharedWithChildren<std::atomic<std::uint64_t>> word;
  Forked stopped([&] {
    word->store(ProcessIdentity::self().pack());
    ::raise(SIGSTOP);
    return 0;
  });
  ASSERT_TRUE(stopped.wait_stopped());
  EXPECT_FALSE(ProcessIdentity::unpack(word->load()).proved_dead());
}

TEST(ProcessIdentity, OfAnotherStartTimeUnderALivingPidIsProvedDead) {
  ProcessIdentity reused = ProcessIdentity::self();
  reused.start_time -= 1;
  EXPECT_TRUE(reused.proved_dead());
}

TEST(ProcessIdentity, OfNobodyIsNotProvedDead) { EXPECT_FALSE(ProcessIdentity{}.proved_dead()); }

TEST(ProcessIdentity, OfAProcessWhoseMainThreadAloneHasEndedIsNotProvedDead) {
  SharedWithChildren<std::atomic<std::uint64_t>> word;
  Forked child([&] {
    word->store(ProcessIdentity::self().pack());
    std::thread([] {
      while (true) ::pause();
    }).detach();
    ::syscall(SYS_exit, 0);  // this thread only
    return 0;
  });
  ASSERT_TRUE(eventually([&] { return word->load() != 0; }));
  const ProcessIdentity identity = ProcessIdentity::unpack(word->load());
  // Until the kernel shows the leader as a zombie.
  const std::string path = "/proc/" + std::to_string(identity.pid) + "/stat";
  ASSERT_TRUE(eventually([&] {
    char text[512] = {};
    std::FILE* file = std::fopen(path.c_str(), "r");
    if (file == nullptr) return false;
    const std::size_t got = std::fread(text, 1, sizeof text - 1, file);
    std::fclose(file);
    return got > 0 && std::string(text).find(") Z ") != std::string::npos;
  }));
  EXPECT_FALSE(identity.proved_dead());
}

TEST(ProcessIdentity, APidIsGoneOnceItsProcessHasEndedButNotWhileItIsStopped) {
  Forked child([] {
    ::raise(SIGSTOP);
    return 0;
  });
  const std::int64_t pid = child.pid();
  ASSERT_TRUE(child.wait_stopped());
  EXPECT_FALSE(ProcessIdentity::is_gone(pid));
  child.signal(SIGKILL);
  EXPECT_TRUE(eventually([&] { return ProcessIdentity::is_gone(pid); })) << "a zombie is gone";
  child.wait();
  EXPECT_TRUE(ProcessIdentity::is_gone(pid));
  EXPECT_FALSE(ProcessIdentity::is_gone(0));
}

TEST(ProcessIdentity, NamespaceIsTheSameInAChildAndNotZero) {
  const std::uint64_t here = identity_namespace();
  EXPECT_NE(here, 0u);
  Forked child([here] { return identity_namespace() == here ? 0 : 1; });
  EXPECT_TRUE(child.succeeds());
}

}  // namespace
}  // namespace gristmill
