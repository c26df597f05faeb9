#include "core/segment.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <vector>

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

constexpr off_t kFields = 80;  // the header's fields; the rest of its page is not used

TEST(Segment, EveryByteOfTheHeaderWithEveryOtherValueIsATypedError) {
  const std::string name = fresh_name();
  Segment creator = Segment::create(name, kKind, kLayout, 100);
  creator.mark_ready();
  auto* page = reinterpret_cast<unsigned char*>(creator.payload()) - Segment::kHeaderBytes;
  for (off_t offset = 0; offset < kFields; ++offset) {
    const unsigned char sound = page[offset];
    for (int value = 0; value < 256; ++value) {
      if (value == sound) continue;
      page[offset] = static_cast<unsigned char>(value);
      const Reason reason = error_of([&] { attach(name, Deadline::in(1s)); }).reason();
      ASSERT_TRUE(reason == Reason::kCorrupt || reason == Reason::kIncompatible)
          << "byte " << offset << " is " << value;
    }
    page[offset] = sound;
  }
  EXPECT_NO_THROW(attach(name));
}

// As who changes it on purpose would: the checksum fits, the field does not.
TEST(Segment, EveryFieldThatIsWrongIsNamedByItsReason) {
  struct Field {
    off_t offset;
    std::size_t bytes;
    Reason reason;
    const char* says;
  };
  const std::string name = fresh_name();
  Segment creator = Segment::create(name, kKind, kLayout, 100);
  creator.mark_ready();
  auto* page = reinterpret_cast<unsigned char*>(creator.payload()) - Segment::kHeaderBytes;
  for (const Field& field :
       {Field{4, 4, Reason::kIncompatible, "ABI version"}, Field{8, 8, Reason::kCorrupt, "begin"},
        Field{16, 4, Reason::kWrongKind, "kind"}, Field{20, 4, Reason::kCorrupt, "sizes"},
        Field{24, 8, Reason::kIncompatible, "layout"}, Field{32, 8, Reason::kCorrupt, "sizes"},
        Field{40, 8, Reason::kCorrupt, "sizes"}, Field{56, 8, Reason::kCorrupt, "owner"},
        Field{64, 8, Reason::kCorrupt, "owner"}}) {
    std::vector<unsigned char> sound(page, page + kFields);
    page[field.offset] ^= 1;
    const std::uint64_t checksum = hash_bytes(page + 4, 68);
    std::memcpy(page + 72, &checksum, sizeof checksum);
    const SegmentError error = error_of([&] { attach(name, Deadline::in(1s)); });
    EXPECT_EQ(error.reason(), field.reason) << field.offset;
    EXPECT_THAT(error.what(), testing::HasSubstr(field.says));
    std::copy(sound.begin(), sound.end(), page);
  }
}

TEST(Segment, WhatIsNoRegularFileIsNotPermittedAndNotWaitedFor) {
  const std::string target = fresh_name();
  Segment creator = Segment::create(target, kKind, kLayout, 100);
  creator.mark_ready();
  const std::string name = fresh_name();
  const std::string path = path_of(name);
  const std::function<int()> makers[] = {
      [&] { return ::symlink(path_of(target).c_str(), path.c_str()); },
      [&] { return ::symlink("/nowhere/at/all", path.c_str()); },
      [&] { return ::mkfifo(path.c_str(), 0600); },
      [&] { return ::mkdir(path.c_str(), 0700); },
  };
  for (const auto& make : makers) {
    ASSERT_EQ(make(), 0);
    for (const auto access : {Segment::Access::kReadWrite, Segment::Access::kReadOnly}) {
      Forked child([&] {
        ::alarm(10);  // a pipe would be waited for
        try {
          Segment::attach(name, kKind, kLayout, Deadline::in(1s), access);
        } catch (const SegmentError& error) {
          return error.reason() == Reason::kNotPermitted ? 0 : 1;
        }
        return 2;
      });
      EXPECT_TRUE(child.succeeds());
    }
    EXPECT_EQ(error_of([&] { Segment::create(name, kKind, kLayout, 100); }).reason(), Reason::kExists);
    ASSERT_EQ(std::remove(path.c_str()), 0);
  }
  EXPECT_NO_THROW(attach(target));
}

TEST(Segment, WithoutFileDescriptorsLeftItIsATypedErrorAndNothingIsLeft) {
  const std::string name = fresh_name();
  Segment creator = Segment::create(name, kKind, kLayout, 100);
  creator.mark_ready();
  Forked child([&] {
    const std::string mine = fresh_name();
    struct rlimit limit {};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    const auto refusal_of = [&](const std::function<void()>& body) {
      const struct rlimit none {
        3, limit.rlim_max
      };
      ::setrlimit(RLIMIT_NOFILE, &none);
      try {
        body();
      } catch (const std::exception& error) {
        ::setrlimit(RLIMIT_NOFILE, &limit);  // sanitizers look at objects through pipes
        return std::string(error.what());
      }
      ::setrlimit(RLIMIT_NOFILE, &limit);
      return std::string();
    };
    const std::string created = refusal_of([&] { Segment::create(mine, kKind, kLayout, 100); });
    const std::string attached = refusal_of([&] { attach(name, Deadline::in(1s)); });
    const bool named =
        created.find("open files") != std::string::npos && attached.find("open files") != std::string::npos;
    if (!named) std::fprintf(stderr, "%s\n%s\n", created.c_str(), attached.c_str());
    return named && !exists(mine) ? 0 : 1;
  });
  EXPECT_TRUE(child.succeeds());
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

TEST(HashBytes, IsFnv1a) {
  EXPECT_EQ(hash_bytes("", 0), 14695981039346656037ull);
  EXPECT_EQ(hash_bytes("a", 1), 0xaf63dc4c8601ec8cull);
  EXPECT_EQ(hash_bytes("bc", 2, hash_bytes("a", 1)), hash_bytes("abc", 3));
}

}  // namespace
}  // namespace gristmill
