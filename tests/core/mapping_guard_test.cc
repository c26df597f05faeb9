// A file that is cut short under its mapping.

#include "core/mapping_guard.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "tests/core/forked.h"

namespace gristmill {
namespace {

constexpr std::size_t kPage = 4096;

class Mapped {
 public:
  explicit Mapped(std::size_t pages) : bytes_(pages * kPage), fd_(::memfd_create("guarded", MFD_CLOEXEC)) {
    EXPECT_EQ(::ftruncate(fd_, static_cast<off_t>(bytes_)), 0);
    at_ = static_cast<char*>(::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0));
    std::memset(at_, 'x', bytes_);
  }
  ~Mapped() {
    ::munmap(at_, bytes_);
    ::close(fd_);
  }
  void cut_to(std::size_t pages) const { EXPECT_EQ(::ftruncate(fd_, static_cast<off_t>(pages * kPage)), 0); }
  volatile char* at() const { return at_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_;
  int fd_;
  char* at_;
};

TEST(MappingGuard, WhatIsGoneReadsAsZerosAndIsSaid) {
  std::atomic<bool> lost{false};
  const Mapped file(4);
  const MappingGuard guard(const_cast<char*>(file.at()), file.bytes(), &lost);
  file.cut_to(1);
  EXPECT_EQ(file.at()[10], 'x');
  EXPECT_FALSE(lost);
  EXPECT_EQ(file.at()[kPage + 10], 0);
  EXPECT_TRUE(lost);
  file.at()[3 * kPage] = 'y';  // the rest of the mapping was replaced with it
  EXPECT_EQ(file.at()[3 * kPage], 'y');
  EXPECT_EQ(file.at()[10], 'x');
}

TEST(MappingGuard, ACopyByTheKernelOrAStringInstructionIsMendedToo) {
  std::atomic<bool> lost{false};
  const Mapped file(4);
  const MappingGuard guard(const_cast<char*>(file.at()), file.bytes(), &lost);
  std::vector<char> out(file.bytes(), '?');
  file.cut_to(2);
  std::memcpy(out.data(), const_cast<char*>(file.at()), out.size());
  EXPECT_TRUE(lost);
  EXPECT_EQ(out[kPage], 'x');
  EXPECT_EQ(out.back(), 0);
}

TEST(MappingGuard, GuardsOfManyMappingsAndThreadsDoNotMixUp) {
  constexpr std::size_t kMany = 150;  // more than a chunk of them
  std::vector<std::unique_ptr<std::atomic<bool>>> lost;
  std::vector<std::unique_ptr<Mapped>> files;
  std::vector<MappingGuard> guards(kMany);
  for (std::size_t i = 0; i < kMany; ++i) {
    lost.push_back(std::make_unique<std::atomic<bool>>(false));
    files.push_back(std::make_unique<Mapped>(1));
  }
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t i = t; i < kMany; i += 3) {
        guards[i] = MappingGuard(const_cast<char*>(files[i]->at()), files[i]->bytes(), lost[i].get());
        if (i % 2 == 1) files[i]->cut_to(0);
        if (files[i]->at()[0] == 0) files[i]->at()[0] = 'y';
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < kMany; ++i) EXPECT_EQ(*lost[i], i % 2 == 1) << i;
}

// Neither is a success: by the signal, or by a sanitizer's report of it.
TEST(MappingGuard, AnyOtherBusErrorEndsTheProcess) {
  std::atomic<bool> lost{false};
  const Mapped guarded(1);
  const MappingGuard guard(const_cast<char*>(guarded.at()), guarded.bytes(), &lost);
  Forked unguarded([] {
    ::alarm(30);
    const Mapped file(1);
    file.cut_to(0);
    return static_cast<int>(file.at()[0]);
  });
  EXPECT_FALSE(unguarded.succeeds());
  Forked sent([] {
    ::alarm(30);
    ::raise(SIGBUS);
    return 0;
  });
  EXPECT_FALSE(sent.succeeds());
}

// Before any guard has been made in the process.
int with_a_handler_from_before() {
  struct sigaction action {};
  action.sa_handler = [](int) { ::_exit(42); };
  ::sigaction(SIGBUS, &action, nullptr);
  std::atomic<bool> lost{false};
  const Mapped guarded(1);
  const Mapped other(1);
  const MappingGuard guard(const_cast<char*>(guarded.at()), guarded.bytes(), &lost);
  guarded.cut_to(0);
  if (guarded.at()[0] != 0 || !lost) return 1;
  other.cut_to(0);
  return other.at()[0];
}

TEST(MappingGuard, TheHandlerThatWasThereBeforeIsAsked) {
  constexpr const char* kFresh = "GRISTMILL_TEST_IN_A_FRESH_PROCESS";
  // The test runs itself anew: guards of the tests before it have installed theirs.
  if (::getenv(kFresh) != nullptr) ::_exit(with_a_handler_from_before());
  Forked fresh([&] {
    ::alarm(60);
    ::setenv(kFresh, "1", 1);
    ::execl("/proc/self/exe", "core_tests", "--gtest_filter=MappingGuard.TheHandlerThatWasThereBeforeIsAsked",
            nullptr);
    return 99;
  });
  const int status = fresh.wait();
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 42);
}

}  // namespace
}  // namespace gristmill
