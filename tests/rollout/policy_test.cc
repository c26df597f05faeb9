#include "rollout/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "rollout/actor.h"

namespace gristmill {
namespace {

EnvironmentSpec discrete_spec(std::int64_t observations = 3, std::int64_t actions = 2) {
  EnvironmentSpec spec;
  spec.observation_shape = {observations};
  spec.action_count = actions;
  return spec;
}

EnvironmentSpec continuous_spec(std::int64_t dims) {
  EnvironmentSpec spec;
  spec.observation_shape = {3};
  spec.action_dims = dims;
  spec.action_low.assign(static_cast<std::size_t>(dims), -1.0F);
  spec.action_high.assign(static_cast<std::size_t>(dims), 1.0F);
  return spec;
}

Config::Policy small(bool shared) {
  Config::Policy config;
  config.hidden_sizes = {5, 4};
  config.shared_trunk = shared;
  return config;
}

std::vector<std::string> names(const FieldSpecs& layout) {
  std::vector<std::string> all;
  for (const FieldSpec& field : layout) all.push_back(field.name);
  return all;
}

// One layer in double precision, straight from its definition.
std::vector<double> layer(const float*& flat, const std::vector<double>& in, std::size_t out,
                          const float* bias) {
  std::vector<double> result(out);
  for (std::size_t o = 0; o < out; ++o) {
    result[o] = bias[o];
    for (const double x : in) result[o] += static_cast<double>(*flat++) * x;
  }
  return result;
}

std::vector<double> tanh_of(std::vector<double> values) {
  for (double& v : values) v = std::tanh(v);
  return values;
}

TEST(PolicyTest, NamesEveryParameterOfASharedTrunkWithTheHeadsLast) {
  const Policy policy(small(true), discrete_spec());
  EXPECT_THAT(names(policy.layout()),
              testing::ElementsAre("trunk.0.weight", "trunk.0.bias", "trunk.1.weight", "trunk.1.bias",
                                   "actor.weight", "critic.weight", "actor.bias", "critic.bias"));
  EXPECT_EQ(policy.parameter_count(), 5 * 3 + 5 + 4 * 5 + 4 + 2 * 4 + 4 + 2 + 1);
}

TEST(PolicyTest, GivesTheCriticATrunkOfItsOwnWhenNotShared) {
  const Policy policy(small(false), continuous_spec(2));
  EXPECT_THAT(names(policy.layout()),
              testing::ElementsAre("actor_trunk.0.weight", "actor_trunk.0.bias", "actor_trunk.1.weight",
                                   "actor_trunk.1.bias", "critic_trunk.0.weight", "critic_trunk.0.bias",
                                   "critic_trunk.1.weight", "critic_trunk.1.bias", "actor.weight",
                                   "critic.weight", "actor.bias", "critic.bias", "actor.log_std"));
}

TEST(PolicyTest, StartsFromOrthogonalWeightsAndZeroBiases) {
  Config::Policy config;
  config.hidden_sizes = {64, 32};
  const Policy policy(config, discrete_spec(16));
  const torch::Tensor flat = policy.initial_parameters(7);
  std::int64_t offset = 0;
  for (const FieldSpec& field : policy.layout()) {
    const torch::Tensor part = flat.narrow(0, offset, field.elements()).view(field.shape);
    offset += field.elements();
    if (field.name.ends_with("bias")) {
      EXPECT_EQ(part.abs().sum().item<float>(), 0) << field.name;
      continue;
    }
    const bool wide = part.size(0) <= part.size(1);
    const torch::Tensor gram = wide ? part.mm(part.t()) : part.t().mm(part);
    const double gain = field.name == "actor.weight"    ? 0.01
                        : field.name == "critic.weight" ? 1.0
                                                        : std::sqrt(2.0);
    const torch::Tensor expected = torch::eye(gram.size(0)) * gain * gain;
    EXPECT_LT((gram - expected).abs().max().item<float>(), 1e-4) << field.name;
  }
}

TEST(PolicyTest, TheSameSeedGivesTheSameParametersAndAnotherSeedOthers) {
  const Policy policy(small(true), discrete_spec());
  EXPECT_TRUE(policy.initial_parameters(3).equal(policy.initial_parameters(3)));
  EXPECT_FALSE(policy.initial_parameters(3).equal(policy.initial_parameters(4)));
}

TEST(PolicyTest, ForwardIsTheNetworkOfItsLayoutInDoublePrecision) {
  Policy policy(small(true), discrete_spec());
  const torch::Tensor flat = torch::randn({policy.parameter_count()});
  policy.bind(flat);
  const PolicyOutput output = policy.forward(torch::tensor({{0.3F, -1.2F, 0.7F}}));
  const float* p = flat.const_data_ptr<float>();
  const float* weights = p;
  auto h = tanh_of(layer(weights, {0.3, -1.2, 0.7}, 5, p + 15));
  weights = p + 20;
  h = tanh_of(layer(weights, h, 4, p + 40));
  weights = p + 44;
  const auto heads = layer(weights, h, 3, p + 56);
  EXPECT_NEAR(output.action_parameters[0][0].item<float>(), heads[0], 1e-5);
  EXPECT_NEAR(output.action_parameters[0][1].item<float>(), heads[1], 1e-5);
  EXPECT_NEAR(output.values[0].item<float>(), heads[2], 1e-5);
}

TEST(PolicyTest, BackwardWritesTheGradientThatFiniteDifferencesFind) {
  for (const bool shared : {true, false}) {
    for (const char* activation : {"tanh", "relu", "elu"}) {
      Config::Policy config = small(shared);
      config.activation = activation;
      Policy policy(config, discrete_spec());
      const torch::Tensor flat = torch::randn({policy.parameter_count()}) * 0.5;
      torch::Tensor gradient = torch::full_like(flat, 99);  // overwritten, not added to
      policy.bind(flat, gradient);
      const torch::Tensor observations = torch::randn({6, 3});
      const torch::Tensor weights = torch::randn({6, 3});  // loss = sum weights * [logits, value]
      const auto loss = [&] {
        const PolicyOutput out = policy.forward(observations);
        return (torch::cat({out.action_parameters, out.values.unsqueeze(1)}, 1) * weights)
            .sum()
            .item<double>();
      };
      loss();
      policy.backward(weights);
      float* p = flat.mutable_data_ptr<float>();
      for (std::int64_t i = 0; i < policy.parameter_count(); ++i) {
        const float before = p[i];
        const float step = 1e-3F;
        p[i] = before + step;
        const double above = loss();
        p[i] = before - step;
        const double below = loss();
        p[i] = before;
        const double expected = (above - below) / (2.0 * step);
        EXPECT_NEAR(gradient[i].item<float>(), expected, 2e-2 * std::max(1.0, std::abs(expected)))
            << activation << (shared ? " shared " : " separate ") << i;
      }
    }
  }
}

TEST(PolicyTest, ReadsBytesAsPixelsBetweenZeroAndOne) {
  EnvironmentSpec spec = discrete_spec();
  spec.observation_dtype = DType::kUInt8;
  Policy policy(small(true), spec);
  policy.bind(policy.initial_parameters(1));
  const auto bytes = policy.forward(torch::tensor({{0, 51, 255}}, torch::kUInt8));
  const auto floats = policy.forward(torch::tensor({{0.0F, 0.2F, 1.0F}}));
  EXPECT_TRUE(bytes.values.allclose(floats.values, 1e-5, 1e-6));
}

TEST(PolicyTest, RefusesAFlatBufferOfAnotherSize) {
  Policy policy(small(true), discrete_spec());
  EXPECT_THROW(policy.bind(torch::zeros({policy.parameter_count() + 1})), std::invalid_argument);
  EXPECT_THROW(policy.bind(torch::zeros({policy.parameter_count()}, torch::kFloat64)), std::invalid_argument);
}

// What the actor writes, in vectors of its own.
struct Acted {
  explicit Acted(std::int64_t count, std::size_t width = 1)
      : actions(static_cast<std::size_t>(count) * width),
        floats(actions.size()),
        log_probs(static_cast<std::size_t>(count)),
        values(static_cast<std::size_t>(count)) {}
  ActRows discrete() { return {bytes(actions, 1), bytes(log_probs, 1), bytes(values, 1)}; }
  ActRows continuous(std::size_t width) {
    return {bytes(floats, width), bytes(log_probs, 1), bytes(values, 1)};
  }
  template <class T>
  static Rows bytes(std::vector<T>& data, std::size_t width) {
    return {reinterpret_cast<std::byte*>(data.data()), static_cast<std::ptrdiff_t>(sizeof(T) * width)};
  }
  std::vector<std::int32_t> actions;
  std::vector<float> floats, log_probs, values;
};

TEST(ActorTest, SamplesActionsAsOftenAsTheirProbabilitiesSayAndReportsThose) {
  Config::Policy config;
  config.hidden_sizes = {};
  Policy policy(config, discrete_spec(1, 3));
  // No hidden layer: logits are the actor's biases (0, log 2, log 5): probabilities 1/8, 2/8, 5/8.
  torch::Tensor flat = torch::zeros({policy.parameter_count()});
  flat[5] = std::log(2.0);
  flat[6] = std::log(5.0);
  policy.bind(flat);
  Actor actor(policy, 11);
  constexpr std::int64_t kCount = 20000;
  std::vector<float> observations(kCount);
  Acted out(kCount);
  actor.act(Acted::bytes(observations, 1), kCount, out.discrete());
  std::vector<int> counts(3);
  for (std::size_t i = 0; i < kCount; ++i) {
    ++counts[static_cast<std::size_t>(out.actions[i])];
    const double expected =
        std::log(std::vector{0.125, 0.25, 0.625}[static_cast<std::size_t>(out.actions[i])]);
    ASSERT_NEAR(out.log_probs[i], expected, 1e-5);
  }
  EXPECT_NEAR(counts[0] / 20000.0, 0.125, 0.012);
  EXPECT_NEAR(counts[1] / 20000.0, 0.25, 0.015);
}

TEST(ActorTest, GreedyTakesTheMostProbableAction) {
  Config::Policy config;
  config.hidden_sizes = {};
  Policy policy(config, discrete_spec(1, 3));
  torch::Tensor flat = torch::zeros({policy.parameter_count()});
  flat[5] = 0.1;
  policy.bind(flat);
  Actor actor(policy, 1);
  std::vector<float> observations(50);
  Acted out(50);
  actor.act(Acted::bytes(observations, 1), 50, out.discrete(), true);
  EXPECT_THAT(out.actions, testing::Each(1));
}

TEST(ActorTest, ContinuousActionsAreNormalAroundTheMeanAndTheirLogDensityIsReported) {
  Config::Policy config;
  config.hidden_sizes = {};
  config.initial_log_std = std::log(0.5);
  Policy policy(config, continuous_spec(2));
  torch::Tensor flat = policy.initial_parameters(0);
  flat.narrow(0, 0, flat.numel() - 2).zero_();
  policy.bind(flat);
  Actor actor(policy, 5);
  constexpr std::int64_t kCount = 20000;
  std::vector<float> observations(kCount * 3);
  Acted out(kCount, 2);
  actor.act(Acted::bytes(observations, 3), kCount, out.continuous(2));
  double sum = 0, squares = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    const double a = out.floats[2 * i], b = out.floats[2 * i + 1];
    sum += a;
    squares += a * a;
    const double expected = -2 * (a * a + b * b) - 2 * std::log(0.5) - std::log(2 * M_PI);
    ASSERT_NEAR(out.log_probs[i], expected, 1e-3);
  }
  EXPECT_NEAR(sum / kCount, 0, 0.02);
  EXPECT_NEAR(std::sqrt(squares / kCount), 0.5, 0.02);
}

TEST(ActorTest, ObservationsMayLieStridedInsideATrajectoryBuffer) {
  Policy policy(small(true), discrete_spec());
  policy.bind(policy.initial_parameters(2));
  std::vector<float> wide(4 * 7), tight(4 * 3);
  for (std::size_t i = 0; i < 4; ++i) {
    for (std::size_t k = 0; k < 3; ++k)
      wide[i * 7 + k] = tight[i * 3 + k] = static_cast<float>(i) - static_cast<float>(k);
  }
  Acted from_wide(4), from_tight(4);
  Actor(policy, 9).act(Acted::bytes(wide, 7), 4, from_wide.discrete());
  Actor(policy, 9).act(Acted::bytes(tight, 3), 4, from_tight.discrete());
  EXPECT_EQ(from_wide.actions, from_tight.actions);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(from_wide.values[i], from_tight.values[i], 1e-6);
}

}  // namespace
}  // namespace gristmill
