// What stands under a segment's name and is not one, not whole, or not ours: a typed error each.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tests/core/forked.h"
#include "tests/core/segment_fixture.h"

namespace gristmill {
namespace {

using namespace segment_test;

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

}  // namespace
}  // namespace gristmill
