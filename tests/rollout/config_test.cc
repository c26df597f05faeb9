#include "rollout/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "rollout/config_options.h"
#include "rollout/nearest_name.h"

namespace gristmill {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

ResolvedConfig parse(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  return parse_config(yaml, "run.yaml", overrides);
}

// The message of the ConfigError that this text and these overrides must cause.
std::string error_of(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  try {
    parse(yaml, overrides);
  } catch (const ConfigError& error) {
    return error.what();
  }
  ADD_FAILURE() << "accepted: " << yaml;
  return "";
}

class ConfigFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("gristmill_config_test." + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string write(const std::string& name, const std::string& text) {
    const auto path = folder_ / name;
    std::ofstream(path) << text;
    return path.string();
  }
  std::string error_of_file(const std::string& path) {
    try {
      load_config(path, {});
    } catch (const ConfigError& error) {
      return error.what();
    }
    ADD_FAILURE() << "accepted: " << path;
    return "";
  }
  std::filesystem::path folder_;
};

TEST(ConfigTest, EmptyTextGivesEveryDefault) {
  const auto resolved = parse("");
  EXPECT_EQ(dump_config(resolved.config), dump_config(Config{}));
  EXPECT_EQ(resolved.sources.at("learner.gamma"), "default");
  EXPECT_EQ(dump_config(parse("# only a comment\n").config), dump_config(Config{}));
}

TEST(ConfigTest, ReadsEveryTypeAndSaysWhereItCameFrom) {
  const auto resolved = parse(
      "seed: 7\n"
      "learner:\n"
      "  learning_rate: 3e-4\n"
      "  normalize_advantages: false\n"
      "  algorithm: impala\n"
      "policy:\n"
      "  hidden_sizes: [32, 16]\n");
  EXPECT_EQ(resolved.config.seed, 7);
  EXPECT_DOUBLE_EQ(resolved.config.learner.learning_rate, 3e-4);
  EXPECT_FALSE(resolved.config.learner.normalize_advantages);
  EXPECT_EQ(resolved.config.learner.algorithm, "impala");
  EXPECT_EQ(resolved.config.policy.hidden_sizes, (std::vector<std::int64_t>{32, 16}));
  EXPECT_EQ(resolved.sources.at("seed"), "run.yaml:1");
  EXPECT_EQ(resolved.sources.at("learner.learning_rate"), "run.yaml:3");
  EXPECT_EQ(resolved.sources.at("policy.hidden_sizes"), "run.yaml:7");
}

TEST(ConfigTest, IntegersMayBeWrittenWithUnderscoresOrExponents) {
  EXPECT_EQ(parse("train: {total_frames: 1_500_000}").config.train.total_frames, 1'500'000);
  EXPECT_EQ(parse("train: {total_frames: 1.5e6}").config.train.total_frames, 1'500'000);
  EXPECT_EQ(parse("seed: 9223372036854775807").config.seed, 9223372036854775807);
}

TEST(ConfigTest, OverridesComeAfterTheFileAndTheLastOneCounts) {
  const auto resolved =
      parse("seed: 1\n", {"seed=2", "learner.learning_rate = 1e-2", "policy.hidden_sizes=[8,8]", "seed=3"});
  EXPECT_EQ(resolved.config.seed, 3);
  EXPECT_EQ(resolved.sources.at("seed"), "override");
  EXPECT_DOUBLE_EQ(resolved.config.learner.learning_rate, 1e-2);
  EXPECT_EQ(resolved.config.policy.hidden_sizes, (std::vector<std::int64_t>{8, 8}));
}

TEST(ConfigTest, OverriddenTextIsTakenAsItStands) {
  EXPECT_EQ(parse("", {"run.dir=a: [b"}).config.run.dir, "a: [b");
  EXPECT_EQ(parse("", {"run.name="}).config.run.name, "");
  EXPECT_EQ(parse("", {"run.dir=a=b"}).config.run.dir, "a=b");
}

TEST(ConfigTest, UnknownKeyNamesFileLineAndNearestKey) {
  EXPECT_THAT(error_of("seed: 1\nlearner:\n  learnin_rate: 1\n"),
              AllOf(StartsWith("run.yaml:3: "), HasSubstr("learner.learnin_rate"),
                    HasSubstr("learner.learning_rate")));
  EXPECT_THAT(error_of("gamma: 0.9"), HasSubstr("learner.gamma"));
  EXPECT_THAT(error_of("learner: {capacity: 3}"), HasSubstr("queue.capacity"));
  EXPECT_THAT(error_of("leaner: {gamma: 0.9}"),
              AllOf(StartsWith("run.yaml:1"), HasSubstr("nearest is learner")));
}

TEST(ConfigTest, UnknownOverrideNamesTheNearestKey) {
  EXPECT_THAT(error_of("", {"workers.cuont=3"}), AllOf(StartsWith("override: "), HasSubstr("workers.count")));
}

TEST(ConfigTest, DuplicateKeysAreRefusedWithBothLines) {
  EXPECT_THAT(error_of("seed: 1\nlog:\n  interval_s: 2\nseed: 1\n"),
              AllOf(HasSubstr("run.yaml:4: seed"), HasSubstr("run.yaml:1")));
  EXPECT_THAT(error_of("log:\n  interval_s: 2\n  interval_s: 3\n"),
              AllOf(HasSubstr("run.yaml:3: log.interval_s"), HasSubstr("run.yaml:2")));
  EXPECT_THAT(error_of("log: {interval_s: 2}\nlog: {tensorboard: true}\n"), HasSubstr("run.yaml:2: log"));
}

TEST(ConfigTest, WrongTypesSayWhatWasExpected) {
  EXPECT_THAT(error_of("seed: many"),
              AllOf(HasSubstr("run.yaml:1: seed = many"), HasSubstr("an integer >= 0")));
  EXPECT_THAT(error_of("seed: '7'"), HasSubstr("in quotes"));
  EXPECT_THAT(error_of("seed: 1.5"), HasSubstr("not a whole number"));
  EXPECT_THAT(error_of("seed: [1]"), HasSubstr("is a list"));
  EXPECT_THAT(error_of("seed:"), HasSubstr("has no value"));
  EXPECT_THAT(error_of("seed: 0x10"), HasSubstr("an integer"));
  EXPECT_THAT(error_of("log: {tensorboard: yes}"), HasSubstr("true or false"));
  EXPECT_THAT(error_of("log: {tensorboard: 1}"), HasSubstr("true or false"));
  EXPECT_THAT(error_of("policy: {hidden_sizes: 64}"), HasSubstr("[64, 64]"));
  EXPECT_THAT(error_of("policy: {hidden_sizes: [64, x]}"), HasSubstr("an item, x"));
  EXPECT_THAT(error_of("learner: 3"), HasSubstr("a mapping of learner's options"));
  EXPECT_THAT(error_of("run: {dir: {a: b}}"), HasSubstr("is a mapping"));
  EXPECT_THAT(error_of("", {"learner=3"}), HasSubstr("is a section"));
  EXPECT_THAT(error_of("", {"seed"}), HasSubstr("key=value"));
  EXPECT_THAT(error_of("", {"policy.hidden_sizes=[64,"}),
              AllOf(StartsWith("override: "), HasSubstr("[64, 64]")));
}

TEST(ConfigTest, NotFiniteAndOverflowingNumbersAreRefused) {
  for (const char* value : {".nan", "nan", "NaN", ".inf", "-.inf", "inf", "-Infinity"}) {
    EXPECT_THAT(error_of("learner: {gamma: " + std::string(value) + "}"), HasSubstr("is not finite"))
        << value;
    EXPECT_THAT(error_of("", {"train.total_frames=" + std::string(value)}), HasSubstr("is not finite"))
        << value;
  }
  EXPECT_THAT(error_of("learner: {vtrace_c: 1e999}"), HasSubstr("does not fit a double"));
  EXPECT_THAT(error_of("seed: 9223372036854775808"), HasSubstr("does not fit 64 bits"));
  EXPECT_THAT(error_of("seed: 1e30"), HasSubstr("does not fit"));
}

TEST(ConfigTest, ValuesOutOfRangeNameTheRange) {
  EXPECT_THAT(error_of("learner: {gamma: 1.5}"), HasSubstr("a number >= 0 and <= 1"));
  EXPECT_THAT(error_of("learner: {learning_rate: 0}"), HasSubstr("a number > 0 and <= 10"));
  EXPECT_THAT(error_of("learner: {adam_beta1: 1}"), HasSubstr("< 1"));
  EXPECT_THAT(error_of("workers: {count: 0}"), HasSubstr("an integer >= 1 and <= 1024"));
  EXPECT_THAT(error_of("policy: {hidden_sizes: []}"), HasSubstr("too short"));
  EXPECT_THAT(error_of("run: {name: ../up}"), HasSubstr("letters, digits"));
  EXPECT_THAT(error_of("learner: {device: gpu}"), HasSubstr("cpu, cuda or cuda:<index>"));
}

TEST(ConfigTest, AnUnknownChoiceNamesTheNearest) {
  EXPECT_THAT(error_of("learner: {algorithm: APP0}"),
              AllOf(HasSubstr("did you mean appo?"), HasSubstr("one of: appo, impala, ppo")));
}

TEST(ConfigTest, EveryProblemIsReportedAtOnce) {
  const auto error = error_of("sed: 1\nlearner:\n  gamma: 2\n", {"workers.count=0"});
  EXPECT_THAT(error, AllOf(HasSubstr("run.yaml:1: sed"), HasSubstr("run.yaml:3: learner.gamma"),
                           HasSubstr("override: workers.count")));
}

TEST(ConfigTest, BrokenYamlNamesTheLine) {
  EXPECT_THAT(error_of("seed: 1\nlearner: [1, 2\n"), StartsWith("run.yaml:"));
  EXPECT_THAT(error_of("seed: 1\nlearner:\n\tgamma: 0.9\n"),
              AllOf(StartsWith("run.yaml:3: "), HasSubstr("tab")));
  EXPECT_THAT(error_of("seed: 1\n---\nseed: 2\n"), HasSubstr("second YAML document"));
  // Without an end, were it read as documents.
  EXPECT_THAT(error_of("{seed: 1}\n}\n"), HasSubstr("run.yaml:2: "));
  EXPECT_THAT(error_of("{seed: 1}, more\n"), HasSubstr("belongs to none"));
  EXPECT_THAT(error_of("- seed\n"), HasSubstr("expected a mapping"));
  EXPECT_THAT(error_of("hello"), HasSubstr("expected a mapping"));
  EXPECT_THAT(error_of("learner.gamma: 0.9"), HasSubstr("indented under learner:"));
  EXPECT_THAT(error_of("[a]: 1"), HasSubstr("as a key"));
  EXPECT_THAT(error_of("seed: !weird 1"), HasSubstr("the tag !weird"));
  EXPECT_THAT(error_of(std::string("seed: 1\0", 8)), HasSubstr("zero byte"));
}

TEST(ConfigTest, HostileYamlIsAnErrorAndNothingWorse) {
  error_of(std::string(100'000, '['));
  error_of("learner: &a\n  gamma: *a\n");
  error_of("env: {id: 'gymnasium:X', kwargs: &a {b: *a}}");
  std::string laughs = "a: &a0 [1,1,1,1,1,1,1,1,1,1]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string last = "*a" + std::to_string(i - 1);
    laughs += std::string(1, static_cast<char>('a' + i)) + ": &a" + std::to_string(i) + " [";
    for (int j = 0; j < 10; ++j) laughs += (j ? "," : "") + last;
    laughs += "]\n";
  }
  error_of(laughs + "env: {id: 'gymnasium:X', kwargs: {x: *a11}}");
}

TEST(ConfigTest, RandomlyDamagedFilesNeverCrashOrHang) {
  const std::string good = dump_config(Config{}, true);
  const std::string bytes =
      "\t\n :[]{}&*!|>'\"%@`#-?,=.\x80\xff\x01"
      "0aZ";
  std::mt19937 random(1);
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string text = good;
    for (int j = 0; j < 3; ++j) text[random() % text.size()] = bytes[random() % bytes.size()];
    try {
      parse(text);
    } catch (const ConfigError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 200);
}

TEST(ConfigTest, MinibatchesMustDivideTheBatch) {
  EXPECT_THAT(error_of("learner: {batch_trajectories: 64, minibatch_trajectories: 24}"),
              AllOf(HasSubstr("24 (run.yaml:1)"), HasSubstr("use 16 or 32")));
  EXPECT_THAT(error_of("learner: {batch_trajectories: 16}"), HasSubstr("is more than"));
}

TEST(ConfigTest, TheQueueMustHoldABatchAndAWorkersVector) {
  EXPECT_THAT(error_of("queue: {capacity: 63}"),
              AllOf(HasSubstr("queue.capacity = 63 (run.yaml:1)"), HasSubstr("at least 64")));
  EXPECT_THAT(error_of("workers: {envs_per_worker: 512}"),
              AllOf(HasSubstr("workers.envs_per_worker = 512"), HasSubstr("at least 512")));
}

TEST(ConfigTest, SynchronousPpoSaysTheBatchItNeeds) {
  const std::string ppo = "learner: {algorithm: ppo, batch_trajectories: 64, minibatch_trajectories: 32}\n";
  EXPECT_THAT(error_of(ppo + "workers: {count: 2, envs_per_worker: 16}"), HasSubstr("use 32"));
  EXPECT_EQ(parse(ppo + "workers: {count: 4, envs_per_worker: 16}").config.learner.algorithm, "ppo");
}

TEST(ConfigTest, KeywordArgumentsMayBeAMappingOrJson) {
  const std::string id = "env:\n  id: gymnasium:LunarLander-v3\n";
  EXPECT_EQ(parse(id + "  kwargs: {gravity: -9.5, n: 3, wind: true, mode: fast, text: '5', none: null}")
                .config.env.kwargs,
            R"({"gravity":-9.5,"n":3,"wind":true,"mode":"fast","text":"5","none":null})");
  EXPECT_EQ(parse(id + R"(  kwargs: '{"a": [1, 2]}')").config.env.kwargs, R"({"a":[1,2]})");
  EXPECT_EQ(parse(id, {"env.kwargs={gravity: -9.5}"}).config.env.kwargs, R"({"gravity":-9.5})");
  EXPECT_EQ(parse(id, {R"(env.kwargs={"a": "b"})"}).config.env.kwargs, R"({"a":"b"})");
  EXPECT_THAT(error_of(id + "  kwargs: [1]"), HasSubstr("a mapping"));
  EXPECT_THAT(error_of(id + "  kwargs: '{'"), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of(id + "  kwargs: {a: .nan}"), HasSubstr("not finite"));
  EXPECT_THAT(error_of(id + "  kwargs: {a: 1, a: 2}"), HasSubstr("twice"));
  EXPECT_THAT(error_of("env: {id: cartpole, kwargs: {a: 1}}"), HasSubstr("takes no arguments"));
  EXPECT_EQ(parse("env: {id: synthetic, kwargs: {step_us: 5}}").config.env.kwargs, R"({"step_us":5})");
}

TEST(ConfigTest, ADumpReadsBackToTheSameConfig) {
  const auto resolved = parse(
      "", {"seed=9223372036854775807", "learner.learning_rate=0.1", "learner.gamma=0",
           "run.dir=a \"b\" # c: é\n\t", "run.name=1e5", "policy.hidden_sizes=[1]", "env.id=gymnasium:A-v1",
           R"(env.kwargs={"a": ["x: y", -1.5e-7, {}, 'it''s']})", "train.stop_at_return=-200.125"});
  for (const bool with_help : {false, true}) {
    const auto again = parse(dump_config(resolved.config, with_help));
    EXPECT_EQ(dump_config(again.config), dump_config(resolved.config));
    EXPECT_EQ(again.config.run.dir, resolved.config.run.dir);
    EXPECT_EQ(again.config.env.kwargs, resolved.config.env.kwargs);
    EXPECT_EQ(again.config.learner.learning_rate, 0.1);
  }
  EXPECT_THAT(dump_config(Config{}, true), HasSubstr("# discount per step (a number >= 0 and <= 1)"));
  EXPECT_THAT(dump_config(Config{}), Not(HasSubstr("#")));
}

TEST(ConfigTest, EveryOptionIsDescribedOnceAndItsDefaultIsValid) {
  const auto options = config_options(Config{});
  std::set<std::string> keys;
  for (const auto& option : options) {
    EXPECT_TRUE(keys.insert(option.key).second) << option.key;
    EXPECT_FALSE(option.help.empty()) << option.key;
    EXPECT_FALSE(option.expected.empty()) << option.key;
    // Strings reach an override without YAML's quotes.
    std::string value = option.value;
    if (option.type == "string" && value.starts_with('"')) value = value.substr(1, value.size() - 2);
    EXPECT_NO_THROW(parse("", {option.key + "=" + value})) << option.key;
  }
  EXPECT_GE(options.size(), 45u);
  EXPECT_EQ(options.front().key, "seed");
}

TEST(ConfigTest, TheSchemaDescribesEveryOption) {
  const auto schema = nlohmann::json::parse(config_schema());
  for (const auto& option : config_options(Config{})) {
    std::string pointer = "/properties/" + option.key;
    if (const auto dot = pointer.find('.'); dot != std::string::npos) pointer.replace(dot, 1, "/properties/");
    const auto& described = schema.at(nlohmann::json::json_pointer(pointer));
    EXPECT_EQ(described.at("description"), option.help);
    EXPECT_TRUE(described.contains("default")) << option.key;
  }
  EXPECT_FALSE(schema.at("additionalProperties").get<bool>());
  EXPECT_EQ(schema.at("/properties/learner/properties/algorithm/enum"_json_pointer).size(), 4u);
  EXPECT_EQ(schema.at("/properties/learner/properties/learning_rate/exclusiveMinimum"_json_pointer), 0);
}

TEST_F(ConfigFileTest, AFileIsNamedByItsPathAndLine) {
  const auto path = write("good.yaml", "seed: 3\n");
  EXPECT_EQ(load_config(path, {}).sources.at("seed"), path + ":1");
  EXPECT_THAT(error_of_file(write("bad.yaml", "\nseed: -1\n")),
              StartsWith((folder_ / "bad.yaml:2: seed = -1").string()));
}

TEST_F(ConfigFileTest, MissingFilesAndFoldersAreNamed) {
  write("cartpole.yaml", "");
  EXPECT_THAT(
      error_of_file((folder_ / "cartpol.yaml").string()),
      AllOf(HasSubstr("no such file"), HasSubstr("did you mean " + (folder_ / "cartpole.yaml").string())));
  EXPECT_THAT(error_of_file(folder_.string()), HasSubstr("is a folder"));
  EXPECT_THAT(error_of_file((folder_ / "none" / "x.yaml").string()), HasSubstr("no such file"));
  EXPECT_THAT(error_of_file(""), HasSubstr("no such file"));
  EXPECT_THAT(error_of_file(write("huge.yaml", std::string(2 << 20, '#'))), HasSubstr("larger than 1 MiB"));
}

TEST(NearestNameTest, AnAbbreviationFindsItsOptionInItsOwnSection) {
  const std::vector<std::string> keys{"env.id", "learner.gamma", "learner.learning_rate", "learner.epochs",
                                      "log.interval_s"};
  EXPECT_EQ(nearest_name("learner.lr", keys), "learner.learning_rate");
  EXPECT_EQ(nearest_name("lr", keys), "learner.learning_rate");
  EXPECT_EQ(nearest_name("learner.epoch", keys), "learner.epochs");
}

TEST(NearestNameTest, CountsSwapsAsOneAndFindsTheRightNameInTheWrongSection) {
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("count", "cuont"), 1u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(nearest_name("train.gamma", {"train.total_frames", "learner.gamma"}), "learner.gamma");
}

}  // namespace
}  // namespace gristmill
