// Boxes that are mapped for reading only.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <string_view>
#include <vector>

#include "core/box.h"
#include "core/fault_point.h"
#include "core/shared_page.h"
#include "tests/core/box_scalars_fixture.h"
#include "tests/core/forked.h"

namespace gristmill {
namespace {

using namespace box_test;
using Outcome = Box::PublishOutcome;

struct Mapped {
  std::size_t begin = 0, bytes = 0;
  bool writable = false;
};

// Of the calling process, of the box's segment.
std::vector<Mapped> mappings_of(const Box& box) {
  std::vector<Mapped> found;
  std::FILE* maps = std::fopen("/proc/self/maps", "r");
  char line[512], access[8];
  while (std::fgets(line, sizeof line, maps) != nullptr) {
    std::size_t begin = 0, end = 0;
    if (std::string_view(line).find(box.name().substr(1)) == std::string_view::npos) continue;
    if (std::sscanf(line, "%zx-%zx %7s", &begin, &end, access) == 3) {
      found.push_back({begin, end - begin, access[1] == 'w'});
    }
  }
  std::fclose(maps);
  return found;
}

long switches() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nvcsw;
}

class BoxReadOnly : public BoxScalars {
 protected:
  std::unique_ptr<Box> attach() {
    return Box::attach(box_->name(), Deadline::in(5s), Box::Access::kReadOnly);
  }
};

TEST_F(BoxReadOnly, AReadOnlyBoxReadsAndWatchesButNeitherPinsNorWrites) {
  update_all(*box_, 4);
  const auto reader = Box::attach(box_->name(), Deadline::in(5s), Box::Access::kReadOnly);
  EXPECT_TRUE(reader->read_only());
  EXPECT_EQ(read_all(*reader), 4);
  EXPECT_EQ(reader->read_int(1), 4);
  EXPECT_THROW(reader->pin(), std::logic_error);
  EXPECT_THROW(reader->write_int(1, 1, Deadline::now()), std::logic_error);
  EXPECT_THROW(reader->begin_write(Deadline::now()), std::logic_error);
  EXPECT_EQ(reader->watch(0, Deadline::now()), 1u);
  EXPECT_EQ(reader->watch(1, Deadline::in(5ms)), std::nullopt);
  Forked writer([&] { return update_all(*box_, 5).version == 2 ? 0 : 1; });
  EXPECT_EQ(reader->watch(1, Deadline::in(30s)), 2u);
  EXPECT_TRUE(writer.succeeds());
  EXPECT_EQ(read_all(*reader), 5);
}

TEST_F(BoxReadOnly, OnlyThePageOfTheWaitersIsMappedForWriting) {
  const auto before = mappings_of(*box_);
  const auto reader = attach();
  std::vector<Mapped> added;
  for (const Mapped& now : mappings_of(*box_)) {
    bool known = false;
    for (const Mapped& old : before) known = known || old.begin == now.begin;
    if (!known) added.push_back(now);
  }
  ASSERT_EQ(added.size(), 2u);
  const Mapped& whole = added[0].bytes > added[1].bytes ? added[0] : added[1];
  const Mapped& page = added[0].bytes > added[1].bytes ? added[1] : added[0];
  EXPECT_FALSE(whole.writable);
  EXPECT_EQ(whole.bytes, before.at(0).bytes);
  EXPECT_TRUE(page.writable);
  EXPECT_EQ(page.bytes, SharedPage::kBytes);
  // Nor can it be made writable: its descriptor is not.
  EXPECT_EQ(::mprotect(reinterpret_cast<void*>(whole.begin), whole.bytes, PROT_READ | PROT_WRITE), -1);
  EXPECT_EQ(errno, EACCES);
}

TEST_F(BoxReadOnly, AWatcherSleepsUntilItIsWoken) {
  const SharedWithChildren<std::atomic<int>> step;
  Forked watcher([&] {
    const auto reader = attach();
    const long before = switches();
    *step = 1;
    if (reader->watch(0, Deadline::in(400ms)) != std::nullopt) return 1;
    // In slices of 25 ms; looking every millisecond would take 400.
    if (switches() - before > 100) return 2;
    *step = 2;
    return reader->watch(0, Deadline::in(60s)) == 1u ? 0 : 3;
  });
  ASSERT_TRUE(eventually([&] { return *step == 2; }));
  box_->write_int(1, 1, Deadline::never());
  EXPECT_EQ(watcher.wait(), 0);
}

TEST_F(BoxReadOnly, WatchersOfBothKindsWakeEachOther) {
  const SharedWithChildren<std::atomic<int>> ready;
  std::vector<Forked> watchers;
  for (int w = 0; w < 12; ++w) {
    watchers.emplace_back([&, w] {
      const auto reader = attach();
      Box& mine = w % 2 == 0 ? *reader : *box_;
      for (std::uint64_t seen = 0; seen < 20; ++seen) {
        ++*ready;
        if (!mine.watch(seen, Deadline::in(60s))) return 1;
      }
      return 0;
    });
  }
  for (int v = 1; v <= 20; ++v) {
    ASSERT_TRUE(eventually([&] { return *ready >= 12 * v; }));
    box_->write_int(1, v, Deadline::never());
  }
  for (Forked& watcher : watchers) EXPECT_TRUE(watcher.succeeds());
}

TEST_F(BoxReadOnly, WhereNothingMayBeWrittenAtAllAWatcherLooksNowAndThen) {
  constexpr uid_t kNobody = 65534;
  const int fd = ::shm_open(box_->name().c_str(), O_RDWR, 0);
  ASSERT_GE(fd, 0);
  if (::geteuid() == 0) {
    ASSERT_EQ(::fchown(fd, kNobody, kNobody), 0);
  }
  ASSERT_EQ(::fchmod(fd, 0400), 0);
  ::close(fd);
  const SharedWithChildren<std::atomic<int>> step;
  Forked watcher([&] {
    if (::geteuid() == 0 && ::setresuid(kNobody, kNobody, kNobody) != 0) return 1;
    const auto before = mappings_of(*box_).size();
    const auto reader = attach();
    if (mappings_of(*box_).size() != before + 1) return 2;
    *step = 1;
    return reader->watch(0, Deadline::in(60s)) == 1u ? 0 : 3;
  });
  ASSERT_TRUE(eventually([&] { return *step == 1; }));
  box_->write_int(1, 1, Deadline::never());
  EXPECT_EQ(watcher.wait(), 0);
}

#ifdef GRISTMILL_FAULT_POINTS

TEST_F(BoxReadOnly, AReadOnlyReaderStoppedInItsCopyStartsOverWhenTheSlotIsFilledAnew) {
  std::int64_t tag = 1;
  ASSERT_EQ(update_all(*box_, tag).outcome, Outcome::kOk);
  Forked reader([&] {
    const auto mine = Box::attach(box_->name(), Deadline::in(5s), Box::Access::kReadOnly);
    fault::arm("box.read.field_copied", fault::Action::kStop);
    std::uint64_t version = 0;
    const std::int64_t read = read_all(*mine, &version);
    return read == static_cast<std::int64_t>(version) && version > 1 ? 0 : 1;
  });
  ASSERT_TRUE(reader.wait_stopped());
  for (int i = 0; i < 9; ++i) ASSERT_EQ(update_all(*box_, ++tag).outcome, Outcome::kOk);
  reader.signal(SIGCONT);
  EXPECT_TRUE(reader.succeeds());
}

#endif

}  // namespace
}  // namespace gristmill
