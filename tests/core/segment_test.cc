#include "core/segment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>

#include "tests/core/forked.h"
#include "tests/core/segment_fixture.h"

namespace gristmill {
namespace {

using namespace segment_test;

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

TEST(HashBytes, IsFnv1a) {
  EXPECT_EQ(hash_bytes("", 0), 14695981039346656037ull);
  EXPECT_EQ(hash_bytes("a", 1), 0xaf63dc4c8601ec8cull);
  EXPECT_EQ(hash_bytes("bc", 2, hash_bytes("a", 1)), hash_bytes("abc", 3));
}

}  // namespace
}  // namespace gristmill
