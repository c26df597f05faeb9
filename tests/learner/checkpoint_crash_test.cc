// Checkpoints against kill -9 at any moment and against a disk that is full.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <random>
#include <thread>

#include "learner/checkpoint.h"
#include "tests/learner/checkpoint_fixture.h"

namespace gristmill {
namespace {

namespace fs = std::filesystem;

using CheckpointCrash = CheckpointTest;

// Saves one after another for ever, and reports each that returned: one byte down the pipe.
[[noreturn]] void save_for_ever(const fs::path& run, std::int64_t frames, int acknowledge) {
  for (;; ++frames) {
    save_checkpoint(run, some_state(frames, 4000), 2);
    if (::write(acknowledge, "x", 1) != 1) ::_exit(1);
  }
}

TEST_F(CheckpointCrash, at_any_moment_leaves_the_last_one_whole) {
  constexpr int kKills = 40;
  using Clock = std::chrono::steady_clock;
  std::mt19937 random(1);
  std::uniform_real_distribution<double> part(0, 1.5);
  std::int64_t acknowledged = 0;  // frames of the newest checkpoint whose save returned
  for (int kill = 0; kill < kKills; ++kill) {
    int pipe[2];
    ASSERT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
    const auto start = Clock::now();
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) save_for_ever(run_, acknowledged + 1, pipe[1]);
    ::close(pipe[1]);
    // The first save says how long one takes; the kill comes at any point of the next one, or of the
    // one after it.
    char byte;
    ASSERT_EQ(::read(pipe[0], &byte, 1), 1);
    ++acknowledged;
    std::this_thread::sleep_for(part(random) * (Clock::now() - start));
    ::kill(child, SIGKILL);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    while (::read(pipe[0], &byte, 1) == 1) ++acknowledged;
    ::close(pipe[0]);

    const auto latest = latest_checkpoint(run_);  // throws when it is damaged
    ASSERT_TRUE(latest.has_value());
    const CheckpointState state = load_checkpoint(*latest);
    ASSERT_GE(state.frames, acknowledged);  // one more may have got its name before the kill
    ASSERT_LE(state.frames, acknowledged + 1);
    ASSERT_TRUE(state == some_state(state.frames, 4000));
    for (const fs::path& path : list_checkpoints(run_)) ASSERT_NO_THROW(load_checkpoint(path)) << path;
    acknowledged = state.frames;
  }
  // The next save clears up, whatever forty deaths left.
  save_checkpoint(run_, some_state(acknowledged + 1, 4000), 2);
  std::size_t entries = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(run_ / "checkpoints")) ++entries;
  EXPECT_EQ(entries, 2u);
}

// In a child, so that a limit or a mount of its own does not outlive the test. The child's failures
// are its exit status and its words on stderr.
template <typename Function>
void in_child(Function&& function) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    function();
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "killed by signal " << WTERMSIG(status);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no mount namespace of one's own here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(CheckpointCrash, writing_that_fails_at_any_byte_is_an_error_and_leaves_the_others) {
  const fs::path good = save_checkpoint(run_, some_state(1), 1);
  in_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    // The files have from 0.3 to 1.5 KB: a limit on file sizes stops each at some point.
    bool saved = false;
    for (rlim_t limit = 0; !saved; limit += 16) {
      const rlimit bound{limit, RLIM_INFINITY};
      ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &bound), 0);
      try {
        save_checkpoint(run_, some_state(2), 9);
        saved = true;
        EXPECT_GT(limit, 500u);
      } catch (const CheckpointError& error) {
        EXPECT_THAT(error.what(), ::testing::HasSubstr("File too large"));
        EXPECT_EQ(latest_checkpoint(run_), good);
        EXPECT_TRUE(load_checkpoint(good) == some_state(1));
      }
    }
    EXPECT_EQ(list_checkpoints(run_).size(), 2u);
  });
}

// A disk of 1 MiB over `path`, for this process alone. Root may mount it at once, others as root of a
// user namespace of their own.
bool mount_small_disk(const fs::path& path) {
  const auto write = [](const char* file, const std::string& text) {
    const int fd = ::open(file, O_WRONLY | O_CLOEXEC);
    const bool written =
        fd >= 0 && ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    if (fd >= 0) ::close(fd);
    return written;
  };
  const std::string user = std::to_string(::geteuid()), group = std::to_string(::getegid());
  const bool separate =
      ::unshare(CLONE_NEWNS) == 0 ||
      (::unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 && write("/proc/self/setgroups", "deny") &&
       write("/proc/self/uid_map", "0 " + user + " 1") && write("/proc/self/gid_map", "0 " + group + " 1"));
  return separate && ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount("tmpfs", path.c_str(), "tmpfs", 0, "size=1m") == 0;
}

TEST_F(CheckpointCrash, on_a_full_disk_is_an_error_and_leaves_the_others) {
  in_child([&] {
    if (!mount_small_disk(run_)) ::_exit(77);
    // 20 000 parameters: 80 KB of them and 160 KB of moments. Four fit into 1 MiB.
    int written = 0;
    std::string reason;
    while (reason.empty() && written < 10) {
      try {
        save_checkpoint(run_, some_state(written + 1, 20'000), 99);
        ++written;
      } catch (const CheckpointError& error) {
        reason = error.what();
      }
    }
    EXPECT_THAT(reason, ::testing::HasSubstr("No space left on device"));
    EXPECT_EQ(written, 4);
    EXPECT_EQ(list_checkpoints(run_).size(), 4u);
    const auto latest = latest_checkpoint(run_);
    ASSERT_TRUE(latest.has_value());
    EXPECT_TRUE(load_checkpoint(*latest) == some_state(4, 20'000));
    // With room again it goes on.
    fs::remove_all(list_checkpoints(run_).front());
    EXPECT_NO_THROW(save_checkpoint(run_, some_state(5, 20'000), 99));
  });
}

}  // namespace
}  // namespace gristmill
