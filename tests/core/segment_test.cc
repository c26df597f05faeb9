#include "core/segment.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <functional>

#include "core/segment_name.h"
#include "tests/core/forked.h"

namespace gristmill {
namespace {

using namespace std::chrono_literals;
using Reason = SegmentError::Reason;
constexpr auto kKind = SegmentKind::kBox;
constexpr std::uint64_t kLayout = 0x1234;

std::string fresh_name() {
  static int number = 0;
  return segment_name("segment-test", "s" + std::to_string(number++));
}

std::string path_of(const std::string& name) { return "/dev/shm" + name; }

bool exists(const std::string& name) { return ::access(path_of(name).c_str(), F_OK) == 0; }

// The SegmentError of `body`, which must throw one.
SegmentError error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const SegmentError& error) {
    return error;
  }
  ADD_FAILURE() << "no SegmentError";
  return {Reason::kSystem, ""};
}

Segment attach(const std::string& name, Deadline deadline = Deadline::now()) {
  return Segment::attach(name, kKind, kLayout, deadline);
}

// Overwrites bytes of the file, as damage would.
void poke(const std::string& name, off_t offset, const void* bytes, std::size_t count) {
  const int fd = ::open(path_of(name).c_str(), O_RDWR);
  ASSERT_EQ(::pwrite(fd, bytes, count, offset), static_cast<ssize_t>(count));
  ::close(fd);
}

TEST(Segment, WhatTheCreatorWroteIsThereForWhoAttaches) {
  const std::string name = fresh_name();
  Segment creator = Segment::create(name, kKind, kLayout, 10'000);
  for (std::size_t i = 0; i < 10'000; ++i) ASSERT_EQ(creator.payload()[i], std::byte{0});
  std::strcpy(reinterpret_cast<char*>(creator.payload()), "grist");
  creator.mark_ready();
  Forked other([&] {
    const Segment segment = attach(name);
    return segment.payload_bytes() == 10'000 && segment.name() == name && segment.fd() >= 0 &&
                   segment.owner().pid == ::getppid() &&
                   std::strcmp(reinterpret_cast<const char*>(segment.payload()), "grist") == 0
               ? 0
               : 1;
  });
  EXPECT_TRUE(other.succeeds());
}

TEST(Segment, IsForItsOwnerOnlyAndHasAllItsPagesFromTheStart) {
  const std::string name = fresh_name();
  const mode_t mask = ::umask(0);
  const Segment segment = Segment::create(name, kKind, kLayout, 3 << 20);
  ::umask(mask);
  struct stat status {};
  ASSERT_EQ(::stat(path_of(name).c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600u);
  EXPECT_GE(status.st_blocks * 512, (3 << 20) + 4096);
}

TEST(Segment, ATakenNameIsRefusedAndTheFirstOneUnharmed) {
  const std::string name = fresh_name();
  Segment first = Segment::create(name, kKind, kLayout, 100);
  first.mark_ready();
  EXPECT_EQ(error_of([&] { Segment::create(name, kKind, kLayout, 100); }).reason(), Reason::kExists);
  EXPECT_NO_THROW(attach(name));
}

TEST(Segment, TooMuchIsRefusedWithBytesNeededAndAvailableAndLeavesNothing) {
  const std::string name = fresh_name();
  const std::size_t too_much = shared_memory_available() + (std::size_t{1} << 30);
  const SegmentError error = error_of([&] { Segment::create(name, kKind, kLayout, too_much); });
  EXPECT_EQ(error.reason(), Reason::kNoSpace);
  EXPECT_THAT(error.what(), testing::HasSubstr(name));
  EXPECT_THAT(error.what(), testing::HasSubstr(std::to_string(too_much + Segment::kHeaderBytes)));
  EXPECT_THAT(error.what(), testing::HasSubstr("available"));
  EXPECT_FALSE(exists(name));
  EXPECT_EQ(error_of([&] { Segment::create(name, kKind, kLayout, SIZE_MAX - 100); }).reason(),
            Reason::kNoSpace);
}

TEST(Segment, ALimitOnFileSizesIsAnErrorAndNotASignal) {
  Forked child([] {
    const struct rlimit limit {
      1 << 20, RLIM_INFINITY
    };
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      Segment::create(fresh_name(), kKind, kLayout, 2 << 20);
    } catch (const SegmentError& error) {
      return error.reason() == Reason::kNoSpace ? 0 : 1;
    }
    return 2;
  });
  EXPECT_TRUE(child.succeeds());
}

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

TEST(Segment, AMissingNameIsNotFoundAtTheDeadline) {
  EXPECT_EQ(error_of([] { attach(fresh_name()); }).reason(), Reason::kNotFound);
}

TEST(Segment, AttachWaitsForTheNameAndForReady) {
  const std::string name = fresh_name();
  Forked other([&] {
    const Segment segment = attach(name, Deadline::in(20s));
    return segment.payload()[0] == std::byte{7} ? 0 : 1;
  });
  ::usleep(5'000);
  Segment creator = Segment::create(name, kKind, kLayout, 100);
  ::usleep(5'000);
  creator.payload()[0] = std::byte{7};
  creator.mark_ready();
  EXPECT_TRUE(other.succeeds());
}

TEST(Segment, ALivingCreatorThatIsNotReadyIsNamedAtTheDeadline) {
  const std::string name = fresh_name();
  const Segment creator = Segment::create(name, kKind, kLayout, 100);
  const SegmentError error = error_of([&] { attach(name, Deadline::in(20ms)); });
  EXPECT_EQ(error.reason(), Reason::kNotReady);
  EXPECT_THAT(error.what(), testing::HasSubstr("process " + std::to_string(::getpid())));
}

TEST(Segment, ADeadCreatorIsNotWaitedFor) {
  struct Name {
    char text[256] = {};
  };
  SharedWithChildren<Name> name;
  Forked creator([&] {
    const std::string mine = fresh_name();
    std::strcpy(name->text, mine.c_str());
    const Segment segment = Segment::create(mine, kKind, kLayout, 100);
    ::raise(SIGKILL);
    return 0;
  });
  ASSERT_TRUE(creator.dies_of(SIGKILL));
  const SegmentError error = error_of([&] { attach(name->text, Deadline::never()); });
  EXPECT_EQ(error.reason(), Reason::kNotReady);
  EXPECT_THAT(error.what(), testing::HasSubstr("died at it"));
  sweep_segments();
  const SegmentError swept = error_of([&] { attach(name->text, Deadline::never()); });
  EXPECT_EQ(swept.reason(), Reason::kNotFound);
  EXPECT_THAT(swept.what(), testing::HasSubstr("is dead"));
}

TEST(Segment, AnotherKindOrLayoutIsRefused) {
  const std::string name = fresh_name();
  Segment creator = Segment::create(name, kKind, kLayout, 100);
  creator.mark_ready();
  EXPECT_EQ(
      error_of([&] { Segment::attach(name, SegmentKind::kRunBoard, kLayout, Deadline::now()); }).reason(),
      Reason::kWrongKind);
  EXPECT_EQ(error_of([&] { Segment::attach(name, kKind, kLayout + 1, Deadline::now()); }).reason(),
            Reason::kIncompatible);
}

TEST(Segment, EveryDamagedByteOfTheHeaderIsATypedError) {
  constexpr off_t kChecked = 80;  // the header's fields; the rest of its page is not used
  for (off_t offset = 0; offset < kChecked; ++offset) {
    const std::string name = fresh_name();
    Segment creator = Segment::create(name, kKind, kLayout, 100);
    creator.mark_ready();
    const auto* page = reinterpret_cast<const unsigned char*>(creator.payload()) - Segment::kHeaderBytes;
    const auto damaged = static_cast<unsigned char>(page[offset] ^ 0x5A);
    poke(name, offset, &damaged, 1);
    const Reason reason = error_of([&] { attach(name, Deadline::in(1s)); }).reason();
    EXPECT_TRUE(reason == Reason::kCorrupt || reason == Reason::kIncompatible) << offset;
  }
}

TEST(Segment, AFileThatIsNoSegmentIsCorrupt) {
  for (const std::string& content :
       {std::string("x"), std::string(79, '\0'), std::string(4096, 'x'), std::string(100'000, '\xFF')}) {
    const std::string name = fresh_name();
    const int fd = ::shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600);
    ASSERT_EQ(::write(fd, content.data(), content.size()), static_cast<ssize_t>(content.size()));
    ::close(fd);
    EXPECT_EQ(error_of([&] { attach(name, Deadline::in(1s)); }).reason(), Reason::kCorrupt);
    ::shm_unlink(name.c_str());
  }
}

TEST(Segment, ATruncatedOrGrownFileIsCorrupt) {
  for (const off_t bytes : {off_t{100}, off_t{4096}, off_t{5000}, off_t{1} << 20}) {
    const std::string name = fresh_name();
    Segment creator = Segment::create(name, kKind, kLayout, 10'000);
    creator.mark_ready();
    ASSERT_EQ(::ftruncate(creator.fd(), bytes), 0);
    EXPECT_EQ(error_of([&] { attach(name); }).reason(), Reason::kCorrupt) << bytes;
  }
}

TEST(Segment, AnUnsafeModeIsNotPermitted) {
  const std::string name = fresh_name();
  Segment creator = Segment::create(name, kKind, kLayout, 100);
  creator.mark_ready();
  ASSERT_EQ(::fchmod(creator.fd(), 0640), 0);
  const SegmentError error = error_of([&] { attach(name); });
  EXPECT_EQ(error.reason(), Reason::kNotPermitted);
  EXPECT_THAT(error.what(), testing::HasSubstr("640"));
}

TEST(Segment, AnotherUsersIsNotPermitted) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const std::string name = fresh_name();
  Segment creator = Segment::create(name, kKind, kLayout, 100);
  creator.mark_ready();
  const auto refused = [&] {
    try {
      attach(name);
    } catch (const SegmentError& error) {
      return error.reason() == Reason::kNotPermitted ? 0 : 1;
    }
    return 2;
  };
  Forked by_mode([&] { return ::seteuid(65534) == 0 ? refused() : 3; });
  EXPECT_TRUE(by_mode.succeeds());
  ASSERT_EQ(::fchown(creator.fd(), 65534, 65534), 0);
  EXPECT_EQ(refused(), 0) << "root may open it, but must not trust it";
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

TEST(Segment, TheCreatorsEndRemovesTheNameAndAForkedChildsDoesNot) {
  const std::string name = fresh_name();
  {
    auto segment = std::make_unique<Segment>(Segment::create(name, kKind, kLayout, 100));
    segment->mark_ready();
    Forked child([&] {
      segment.reset();
      return 0;
    });
    ASSERT_TRUE(child.succeeds());
    EXPECT_TRUE(exists(name));
    { const Segment attached = attach(name); }
    EXPECT_TRUE(exists(name)) << "who attached does not remove it";
  }
  EXPECT_FALSE(exists(name));
}

TEST(Segment, UnlinkedKeepsItsMappingAndDoesNotRemoveASuccessor) {
  const std::string name = fresh_name();
  auto first = std::make_unique<Segment>(Segment::create(name, kKind, kLayout, 100));
  first->unlink();
  first->unlink();
  first->payload()[0] = std::byte{1};
  const Segment second = Segment::create(name, kKind, kLayout, 100);
  first.reset();
  EXPECT_TRUE(exists(name));
}

TEST(Segment, AMovedOneIsRemovedOnce) {
  const std::string name = fresh_name();
  Segment first = Segment::create(name, kKind, kLayout, 100);
  std::byte* const payload = first.payload();
  Segment second(std::move(first));
  EXPECT_EQ(second.payload(), payload);
  { const Segment emptied = std::move(first); }
  EXPECT_TRUE(exists(name));
  second = Segment::create(fresh_name(), kKind, kLayout, 100);
  EXPECT_FALSE(exists(name)) << "what is assigned over is let go";
}

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

TEST(HashBytes, IsFnv1a) {
  EXPECT_EQ(hash_bytes("", 0), 14695981039346656037ull);
  EXPECT_EQ(hash_bytes("a", 1), 0xaf63dc4c8601ec8cull);
  EXPECT_EQ(hash_bytes("bc", 2, hash_bytes("a", 1)), hash_bytes("abc", 3));
}

}  // namespace
}  // namespace gristmill
