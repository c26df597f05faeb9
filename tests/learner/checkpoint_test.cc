#include "learner/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <limits>

#include "learner/checkpoint_state.h"
#include "learner/content_hash.h"
#include "tests/learner/checkpoint_fixture.h"

namespace gristmill {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

using Checkpoint = CheckpointTest;

std::string read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
// A new file each time: some file systems bring one that is cut to nothing and rewritten to the disk.
void write_text(const fs::path& path, const std::string& text) {
  fs::remove(path);
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

template <typename Function>
std::string refusal(Function&& function) {
  try {
    function();
  } catch (const CheckpointError& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}

std::vector<std::string> names(const fs::path& directory) {
  std::vector<std::string> result;
  for (const auto& entry : fs::directory_iterator(directory))
    result.push_back(entry.path().filename().string());
  std::sort(result.begin(), result.end());
  return result;
}

TEST_F(Checkpoint, gives_back_every_entry_of_the_state) {
  const CheckpointState state = some_state(160'000);
  const fs::path path = save_checkpoint(run_, state, 3);
  EXPECT_EQ(path, run_ / "checkpoints" / "000001-frames-000000160000");
  EXPECT_EQ(names(path),
            (std::vector<std::string>{"model.safetensors", "optimizer.safetensors", "state.json"}));
  EXPECT_TRUE(load_checkpoint(path) == state);
  EXPECT_EQ(latest_checkpoint(run_), path);
}

TEST_F(Checkpoint, keeps_floats_to_the_last_bit) {
  CheckpointState state = some_state(1);
  state.parameters[0] = std::numeric_limits<float>::denorm_min();
  state.parameters[1] = -0.0f;
  state.recent_returns = {0.1f, 1e-38f, 3.4e38f, 16777217.0f};
  state.progress = 0.1 + 0.2;
  state.elapsed_s = 1e300;
  const CheckpointState read = load_checkpoint(save_checkpoint(run_, state, 1));
  EXPECT_TRUE(read == state);
  EXPECT_TRUE(std::signbit(read.parameters[1]));
}

TEST_F(Checkpoint, is_absent_from_a_new_run) {
  EXPECT_EQ(latest_checkpoint(run_), std::nullopt);
  EXPECT_EQ(latest_checkpoint(run_ / "nowhere"), std::nullopt);
  EXPECT_TRUE(list_checkpoints(run_).empty());
}

TEST_F(Checkpoint, keeps_the_newest_few) {
  for (std::int64_t frames = 1; frames <= 5; ++frames) save_checkpoint(run_, some_state(frames), 2);
  EXPECT_EQ(names(run_ / "checkpoints"),
            (std::vector<std::string>{"000004-frames-000000000004", "000005-frames-000000000005"}));
  // A smaller number takes effect with the next one; at least that one stays.
  save_checkpoint(run_, some_state(6), 0);
  EXPECT_EQ(names(run_ / "checkpoints"), (std::vector<std::string>{"000006-frames-000000000006"}));
}

TEST_F(Checkpoint, is_the_latest_after_going_back_to_an_earlier_one) {
  for (const std::int64_t frames : {100, 200, 300}) save_checkpoint(run_, some_state(frames), 3);
  const fs::path again = save_checkpoint(run_, some_state(150), 3);
  EXPECT_EQ(latest_checkpoint(run_), again);
  EXPECT_EQ(list_checkpoints(run_).size(), 3u);
}

TEST_F(Checkpoint, may_be_written_twice_for_the_same_frames) {
  save_checkpoint(run_, some_state(100), 3);
  const fs::path second = save_checkpoint(run_, some_state(100), 3);
  EXPECT_EQ(latest_checkpoint(run_), second);
  EXPECT_EQ(list_checkpoints(run_).size(), 2u);
}

TEST_F(Checkpoint, sorts_by_number_beyond_the_zeros) {
  save_checkpoint(run_, some_state(1), 9);
  fs::rename(run_ / "checkpoints" / "000001-frames-000000000001",
             run_ / "checkpoints" / "999999-frames-000000000001");
  const fs::path next = save_checkpoint(run_, some_state(2), 9);
  EXPECT_EQ(next.filename(), "1000000-frames-000000000002");
  EXPECT_EQ(latest_checkpoint(run_), next);
}

TEST_F(Checkpoint, leaves_other_files_of_the_directory_alone) {
  save_checkpoint(run_, some_state(1), 1);
  for (const char* name : {"notes.txt", "best-frames-12", "000001-frames-", "-frames-1", "000001-frames-x"}) {
    write_text(run_ / "checkpoints" / name, "mine");
  }
  save_checkpoint(run_, some_state(2), 1);
  EXPECT_EQ(list_checkpoints(run_).size(), 1u);
  EXPECT_EQ(names(run_ / "checkpoints").size(), 6u);
}

TEST_F(Checkpoint, removes_what_a_crash_left_behind) {
  save_checkpoint(run_, some_state(1), 3);
  const fs::path left = run_ / "checkpoints" / ".aside-000002-frames-000000000002";
  fs::create_directory(left);
  write_text(left / "model.safetensors", "half of it");
  EXPECT_EQ(list_checkpoints(run_).size(), 1u);
  const fs::path path = save_checkpoint(run_, some_state(2), 3);
  EXPECT_FALSE(fs::exists(left));
  EXPECT_EQ(load_checkpoint(path).frames, 2);
}

TEST_F(Checkpoint, is_refused_with_any_bit_of_any_file_flipped) {
  const fs::path path = save_checkpoint(run_, some_state(1), 3);
  for (const std::string& name : names(path)) {
    const std::string whole = read_text(path / name);
    for (std::size_t i = 0; i < whole.size(); ++i) {
      std::string damaged = whole;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << (i % 8)));
      write_text(path / name, damaged);
      EXPECT_THROW(load_checkpoint(path), CheckpointError) << name << " byte " << i;
    }
    write_text(path / name, whole);
  }
  EXPECT_TRUE(load_checkpoint(path) == some_state(1));
}

TEST_F(Checkpoint, is_refused_with_any_file_cut_short_extended_or_missing) {
  const fs::path path = save_checkpoint(run_, some_state(1), 3);
  for (const std::string& name : names(path)) {
    const std::string whole = read_text(path / name);
    for (std::size_t size = 0; size < whole.size(); ++size) {
      write_text(path / name, whole.substr(0, size));
      EXPECT_THROW(load_checkpoint(path), CheckpointError) << name << " of " << size;
    }
    write_text(path / name, whole + "\n");
    EXPECT_THROW(load_checkpoint(path), CheckpointError) << name << " and a line";
    fs::remove(path / name);
    EXPECT_THAT(refusal([&] { load_checkpoint(path); }), HasSubstr(name));
    write_text(path / name, whole);
  }
}

TEST_F(Checkpoint, is_refused_with_a_file_of_another_one) {
  const fs::path first = save_checkpoint(run_, some_state(1), 3);
  const fs::path second = save_checkpoint(run_, some_state(2), 3);
  for (const char* name : {"model.safetensors", "optimizer.safetensors"}) {
    const std::string own = read_text(second / name);
    write_text(second / name, read_text(first / name));
    EXPECT_THAT(refusal([&] { load_checkpoint(second); }),
                AllOf(HasSubstr(name), HasSubstr("another checkpoint")));
    write_text(second / name, own);
  }
}

TEST_F(Checkpoint, that_is_damaged_is_named_and_the_whole_one_before_offered) {
  const fs::path first = save_checkpoint(run_, some_state(1), 9);
  const fs::path second = save_checkpoint(run_, some_state(2), 9);
  const fs::path third = save_checkpoint(run_, some_state(3), 9);
  const std::string model = read_text(third / "model.safetensors");
  write_text(third / "model.safetensors", model.substr(0, model.size() - 1));
  try {
    latest_checkpoint(run_);
    FAIL() << "a damaged checkpoint was offered";
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr(third.string()), HasSubstr("cut short"),
                                    HasSubstr("resume from the one before instead: " + second.string())));
    EXPECT_EQ(error.previous(), second);
  }
  fs::remove(second / "state.json");
  try {
    latest_checkpoint(run_);
    FAIL() << "a damaged checkpoint was offered";
  } catch (const CheckpointError& error) {
    EXPECT_EQ(error.previous(), first);
  }
  fs::remove_all(first / "optimizer.safetensors");
  try {
    latest_checkpoint(run_);
    FAIL() << "a damaged checkpoint was offered";
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no earlier checkpoint of this run is whole"));
    EXPECT_TRUE(error.previous().empty());
  }
}

TEST_F(Checkpoint, is_not_written_with_a_number_that_is_not_finite) {
  const fs::path good = save_checkpoint(run_, some_state(1), 1);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CheckpointState state = some_state(2);
  state.parameters[10] = nan;  // 9 weights, then biases
  EXPECT_THAT(refusal([&] { save_checkpoint(run_, state, 1); }),
              HasSubstr("parameters trunk.0.bias[1] is nan"));
  state = some_state(2);
  state.second_moment[4] = std::numeric_limits<float>::infinity();
  EXPECT_THAT(refusal([&] { save_checkpoint(run_, state, 1); }),
              HasSubstr("second_moment trunk.0.weight[4] is inf"));
  state = some_state(2);
  state.recent_returns[1] = nan;
  EXPECT_THAT(refusal([&] { save_checkpoint(run_, state, 1); }), HasSubstr("recent_returns [1] is nan"));
  state = some_state(2);
  state.elapsed_s = std::numeric_limits<double>::infinity();
  EXPECT_THAT(refusal([&] { save_checkpoint(run_, state, 1); }), HasSubstr("elapsed_s"));
  EXPECT_EQ(names(run_ / "checkpoints"), std::vector<std::string>{good.filename().string()});
  EXPECT_TRUE(load_checkpoint(good) == some_state(1));
}

TEST_F(Checkpoint, is_not_written_with_arrays_that_do_not_fit_the_layout) {
  CheckpointState state = some_state(1);
  state.first_moment.pop_back();
  EXPECT_THAT(refusal([&] { save_checkpoint(run_, state, 1); }),
              HasSubstr("first_moment has 11 elements, and the layout 12"));
  state = some_state(1);
  state.layout[0].dtype = DType::kFloat64;
  EXPECT_THAT(refusal([&] { save_checkpoint(run_, state, 1); }), HasSubstr("trunk.0.weight is not float32"));
}

TEST_F(Checkpoint, names_a_directory_that_cannot_be_written) {
  write_text(run_ / "file", "in the way");
  EXPECT_THAT(refusal([&] { save_checkpoint(run_ / "file", some_state(1), 1); }),
              AllOf(HasSubstr((run_ / "file").string()), HasSubstr("Not a directory")));
  // Holds for root as well, whom permissions do not stop.
  EXPECT_THAT(refusal([&] { save_checkpoint("/proc/self", some_state(1), 1); }), HasSubstr("/proc/self"));
}

// In a child: limits are a process's own. A signal would be another ending than 0.
template <typename Body>
bool holds_in_a_child(Body&& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body() ? 0 : 1);
  int status = -1;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST_F(Checkpoint, that_does_not_fit_the_limits_is_an_error_and_the_one_before_stays) {
  const fs::path before = save_checkpoint(run_, some_state(1), 3);
  const auto refused = [&](int resource, rlim_t limit, const char* why) {
    return holds_in_a_child([&] {
      struct rlimit before_it {};
      ::getrlimit(resource, &before_it);
      const struct rlimit limits {
        limit, before_it.rlim_max
      };
      ::setrlimit(resource, &limits);
      std::string text;
      try {
        save_checkpoint(run_, some_state(2, 12'000), 3);
      } catch (const CheckpointError& error) {
        ::setrlimit(resource, &before_it);  // sanitizers look at objects through pipes
        text = error.what();
      }
      if (text.find(why) == std::string::npos) std::fprintf(stderr, "%s\n", text.c_str());
      return text.find(why) != std::string::npos;
    });
  };
  EXPECT_TRUE(refused(RLIMIT_FSIZE, 1000, "File too large"));
  EXPECT_TRUE(refused(RLIMIT_NOFILE, 3, "Too many open files"));
  EXPECT_EQ(latest_checkpoint(run_), before);
  EXPECT_EQ(names(run_ / "checkpoints"), std::vector<std::string>{before.filename().string()});
}

TEST_F(Checkpoint, without_an_entry_that_is_needed_is_refused_by_its_name) {
  const CheckpointState state = some_state(1);
  EXPECT_EQ(counter_of(state, "dropped_stale"), 3);
  EXPECT_EQ(random_state_of(state, "learner"), "0123456789abcdef");
  EXPECT_THAT(refusal([&] { counter_of(state, "launches"); }), HasSubstr("no counter \"launches\""));
  EXPECT_THAT(refusal([&] { random_state_of(state, "dice"); }), HasSubstr("no random state \"dice\""));
}

TEST_F(Checkpoint, of_a_directory_that_is_none_is_refused) {
  EXPECT_THAT(refusal([&] { load_checkpoint(run_ / "nowhere"); }), HasSubstr((run_ / "nowhere").string()));
  fs::create_directories(run_ / "odd" / "state.json");
  EXPECT_THAT(refusal([&] { load_checkpoint(run_ / "odd"); }), HasSubstr("state.json"));
}

// What only another program, or an adversary, writes: the seal fits, and the values do not.
TEST_F(Checkpoint, is_refused_with_a_number_that_is_no_integer_where_one_belongs) {
  const CheckpointState state = some_state(160'000);
  FileHashes hashes;
  const std::string sound = checkpoint_state_text(state, {});
  for (const std::string number : {"1e300", "1.5", "true", "18446744073709551615", "\"1\""}) {
    std::string text = sound;
    const std::size_t seal_at = text.find("xxh64:");
    text.replace(seal_at, kUnsealed.size(), kUnsealed);
    const std::size_t at = text.find("160000");
    text.replace(at, 6, number);
    seal(text);
    EXPECT_THAT(refusal([&] { parse_checkpoint_state(text, "state.json", hashes); }),
                AllOf(HasSubstr("state.json: \"frames\": "), HasSubstr("is not an integer")))
        << number;
  }
  EXPECT_TRUE(parse_checkpoint_state(sound, "state.json", hashes).counters == state.counters);
}

}  // namespace
}  // namespace gristmill
