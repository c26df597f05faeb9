#include "rollout/stack_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>

#include "tests/core/forked.h"

namespace gristmill {
namespace {

using testing::HasSubstr;

struct Steps {
  std::atomic<int> ready{0};
};

// Not inlined, and nothing but the full symbol table names it.
__attribute__((noinline)) int sleep_in_here() {
  while (::pause() != 0) {
  }
  return 0;
}

TEST(StackReportTest, AProcessThatSleepsTellsWhere) {
  const SharedWithChildren<Steps> shared;
  const Forked child([&] {
    if (!report_stacks()) return 1;
    shared->ready = 1;
    return sleep_in_here();
  });
  ASSERT_TRUE(eventually([&] { return shared->ready == 1; }));
  for (int i = 0; i < 3; ++i) {  // again and again
    const StackRequest request(child.pid());
    ASSERT_TRUE(eventually([&] { return request.collect().has_value(); }));
    EXPECT_THAT(request.collect()->frames, testing::AllOf(HasSubstr("pause"), HasSubstr("sleep_in_here")));
  }
}

TEST(StackReportTest, AProcessThatDoesNotAnswerIsNotDisturbed) {
  const SharedWithChildren<Steps> shared;
  const Forked child([&] {
    ::signal(stack_signal(), SIG_DFL);
    shared->ready = 1;
    while (::pause() != 0) {
    }
    return 0;
  });
  ASSERT_TRUE(eventually([&] { return shared->ready == 1; }));
  const StackRequest request(child.pid());
  EXPECT_EQ(request.collect(), std::nullopt);
  EXPECT_EQ(::kill(child.pid(), 0), 0);
}

TEST(StackReportTest, AProcessThatHasEndedHasNoStack) {
  Forked child([] { return 0; });
  const pid_t pid = child.pid();
  child.wait();
  EXPECT_EQ(StackRequest(pid).collect(), std::nullopt);
}

TEST(StackReportTest, OfPythonsThreadsTheOneThatWasAskedIsShown) {
  const auto stack = parse_stack(
      "Thread 0x00007f01 (most recent call first):\n"
      "  File \"/usr/lib/python3.11/threading.py\", line 324 in wait\n"
      "\n"
      "Current thread 0x00007f02 (most recent call first):\n"
      "  File \"/home/me/my env.py\", line 12 in step\n"
      "  File \"/home/me/wrapper.py\", line 3 in <lambda>\n");
  ASSERT_TRUE(stack);
  EXPECT_EQ(stack->where, "step at /home/me/my env.py:12");
  EXPECT_EQ(stack->frames,
            "    step at /home/me/my env.py:12\n"
            "    <lambda> at /home/me/wrapper.py:3\n");
}

TEST(StackReportTest, NativeFramesAreDemangled) {
  const auto stack = parse_stack(
      "./worker(_ZN9gristmill4Zeta4stepEi+0x1c)[0x55d5]\n/lib/libc.so.6(+0x2724a)[0x7f3]\nnonsense\n");
  ASSERT_TRUE(stack);
  EXPECT_EQ(stack->where, "gristmill::Zeta::step(int) in ./worker");
  EXPECT_THAT(stack->frames,
              testing::AllOf(HasSubstr("    /lib/libc.so.6+0x2724a\n"), HasSubstr("nonsense")));
}

TEST(StackReportTest, TextWithoutAFrameIsNoStack) {
  EXPECT_EQ(parse_stack("").has_value(), false);
  EXPECT_EQ(parse_stack("Current thread 0x1 (most recent call first):\n  <no Python frame>\n").has_value(),
            false);
}

}  // namespace
}  // namespace gristmill
