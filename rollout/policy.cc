#include "rollout/policy.h"

#include <cmath>
#include <stdexcept>
#include <utility>

namespace gristmill {
namespace {

FieldSpec float_field(std::string name, std::vector<std::int64_t> shape) {
  return FieldSpec{.name = std::move(name), .dtype = DType::kFloat32, .shape = std::move(shape)};
}

}  // namespace

Policy::Policy(const Config::Policy& config, const EnvironmentSpec& environment)
    : environment_(environment),
      config_(config),
      outputs_(environment.discrete() ? environment.action_count : environment.action_dims) {
  (void)activation_from_name(config.activation);
  if (outputs_ <= 0) throw std::invalid_argument("policy: the environment has no actions");
  std::int64_t width = 0;
  const auto mlp = [&](const std::string& prefix) {
    width = environment.observation_elements();
    for (std::size_t i = 0; i < config.hidden_sizes.size(); ++i) {
      const std::string layer = prefix + "." + std::to_string(i);
      layout_.push_back(float_field(layer + ".weight", {config.hidden_sizes[i], width}));
      layout_.push_back(float_field(layer + ".bias", {config.hidden_sizes[i]}));
      width = config.hidden_sizes[i];
    }
  };
  // The heads come last and side by side, so that with a shared trunk both are one matrix.
  if (config.shared_trunk) {
    mlp("trunk");
  } else {
    mlp("actor_trunk");
    mlp("critic_trunk");
  }
  layout_.push_back(float_field("actor.weight", {outputs_, width}));
  layout_.push_back(float_field("critic.weight", {1, width}));
  layout_.push_back(float_field("actor.bias", {outputs_}));
  layout_.push_back(float_field("critic.bias", {1}));
  if (!environment.discrete()) layout_.push_back(float_field("actor.log_std", {outputs_}));
  for (const FieldSpec& field : layout_) parameter_count_ += field.elements();
}

torch::Tensor Policy::initial_parameters(std::uint64_t seed) const {
  const torch::NoGradGuard no_grad;
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  torch::Tensor flat = torch::zeros({parameter_count_});
  std::int64_t offset = 0;
  for (const FieldSpec& field : layout_) {
    torch::Tensor part = flat.narrow(0, offset, field.elements()).view(field.shape);
    offset += field.elements();
    if (field.name == "actor.log_std") {
      part.fill_(config_.initial_log_std);
    } else if (field.name.ends_with(".weight")) {
      const double gain = field.name == "actor.weight"    ? 0.01
                          : field.name == "critic.weight" ? 1.0
                                                          : std::sqrt(2.0);
      const std::int64_t rows = part.size(0);
      const std::int64_t columns = part.size(1);
      torch::Tensor gaussian = at::randn({std::max(rows, columns), std::min(rows, columns)}, generator);
      auto [q, r] = at::linalg_qr(gaussian);
      q = q * r.diagonal().sign();  // makes the distribution uniform over orthogonal matrices
      part.copy_((rows < columns ? q.t() : q) * gain);
    }
  }
  return flat;
}

void Policy::bind(const torch::Tensor& flat, const torch::Tensor& gradient) {
  if (flat.numel() != parameter_count_ || flat.scalar_type() != torch::kFloat32 || !flat.is_contiguous()) {
    throw std::invalid_argument("policy: bind() needs " + std::to_string(parameter_count_) +
                                " contiguous float32 parameters");
  }
  std::int64_t offset = 0;
  const auto linear = [&](std::int64_t out, std::int64_t in) {
    const auto take = [&](const torch::Tensor& buffer, std::int64_t at,
                          const std::vector<std::int64_t>& shape) {
      std::int64_t count = 1;
      for (const std::int64_t extent : shape) count *= extent;
      return buffer.defined() ? buffer.narrow(0, at, count).view(shape) : torch::Tensor();
    };
    const Linear layer{take(flat, offset, {out, in}), take(flat, offset + out * in, {out}),
                       take(gradient, offset, {out, in}), take(gradient, offset + out * in, {out})};
    offset += out * in + out;
    return layer;
  };
  const auto mlp = [&](Mlp& trunk) {
    std::vector<Linear> layers;
    std::int64_t width = environment_.observation_elements();
    for (const std::int64_t size : config_.hidden_sizes) {
      layers.push_back(linear(size, width));
      width = size;
    }
    trunk.bind(std::move(layers), activation_from_name(config_.activation));
    return width;
  };
  const std::int64_t width = mlp(trunk_);
  if (config_.shared_trunk) {
    actor_ = linear(outputs_ + 1, width);
  } else {
    mlp(critic_trunk_);
    // The layout has both weights before both biases, as a shared trunk's single matrix wants them.
    const Linear both = linear(outputs_ + 1, width);
    const auto rows = [](const torch::Tensor& t, std::int64_t begin, std::int64_t count) {
      return t.defined() ? t.narrow(0, begin, count) : t;
    };
    const auto part = [&](std::int64_t begin, std::int64_t count) {
      return Linear{rows(both.weight, begin, count), rows(both.bias, begin, count),
                    rows(both.weight_gradient, begin, count), rows(both.bias_gradient, begin, count)};
    };
    actor_ = part(0, outputs_);
    critic_ = part(outputs_, 1);
  }
  if (!environment_.discrete()) log_std_ = flat.narrow(0, offset, outputs_);
}

PolicyOutput Policy::forward(const torch::Tensor& observations) {
  const c10::InferenceMode inference;
  torch::Tensor x = observations.dim() == 2 ? observations : observations.flatten(1);
  if (x.scalar_type() == torch::kUInt8) x = x.to(torch::kFloat32).mul_(1.0F / 255.0F);
  hidden_ = trunk_.forward(x);
  actor_output_ = at::addmm(actor_.bias, hidden_, actor_.weight.t());
  if (config_.shared_trunk) return {actor_output_.narrow(1, 0, outputs_), actor_output_.select(1, outputs_)};
  critic_hidden_ = critic_trunk_.forward(x);
  critic_output_ = at::addmm(critic_.bias, critic_hidden_, critic_.weight.t());
  return {actor_output_, critic_output_.select(1, 0)};
}

void Policy::backward(const torch::Tensor& output_gradient) {
  const c10::InferenceMode inference;
  const auto head = [&](Linear& linear, Mlp& trunk, const torch::Tensor& hidden,
                        const torch::Tensor& gradient) {
    linear.backward(hidden, gradient);
    at::mm_out(hidden_gradient_, gradient, linear.weight);
    trunk.backward(hidden_gradient_);
  };
  if (!hidden_gradient_.defined()) hidden_gradient_ = torch::empty({0}, actor_.weight.options());
  if (config_.shared_trunk) {
    head(actor_, trunk_, hidden_, output_gradient);
  } else {
    head(actor_, trunk_, hidden_, output_gradient.narrow(1, 0, outputs_));
    head(critic_, critic_trunk_, critic_hidden_, output_gradient.narrow(1, outputs_, 1));
  }
}

}  // namespace gristmill
