#include "rollout/policy.h"

#include <cmath>
#include <stdexcept>
#include <utility>

namespace gristmill {
namespace {

enum class Activation { kTanh, kRelu, kElu };

Activation activation_of(const std::string& name) {
  if (name == "tanh") return Activation::kTanh;
  if (name == "relu") return Activation::kRelu;
  if (name == "elu") return Activation::kElu;
  throw std::invalid_argument("policy.activation: '" + name + "' is none of tanh, relu, elu");
}

// In place: the linear layer's result is not needed by anyone else, also not by its gradient.
void activate(torch::Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::kTanh: x.tanh_(); return;
    case Activation::kRelu: x.relu_(); return;
    case Activation::kElu: at::elu_(x); return;
  }
}

FieldSpec float_field(std::string name, std::vector<std::int64_t> shape) {
  return FieldSpec{.name = std::move(name), .dtype = DType::kFloat32, .shape = std::move(shape)};
}

}  // namespace

Policy::Policy(const Config::Policy& config, const EnvironmentSpec& environment)
    : environment_(environment), config_(config) {
  (void)activation_of(config.activation);
  const std::int64_t outputs = environment.discrete() ? environment.action_count : environment.action_dims;
  if (outputs <= 0) throw std::invalid_argument("policy: the environment has no actions");
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
  layout_.push_back(float_field("actor.weight", {outputs, width}));
  layout_.push_back(float_field("critic.weight", {1, width}));
  layout_.push_back(float_field("actor.bias", {outputs}));
  layout_.push_back(float_field("critic.bias", {1}));
  if (!environment.discrete()) layout_.push_back(float_field("actor.log_std", {outputs}));
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

void Policy::bind(torch::Tensor flat) { bind_views(std::move(flat), {}); }

void Policy::bind_with_gradients(torch::Tensor flat, torch::Tensor flat_grad) {
  bind_views(std::move(flat), std::move(flat_grad));
}

void Policy::bind_views(torch::Tensor flat, torch::Tensor flat_grad) {
  if (flat.numel() != parameter_count_ || flat.scalar_type() != torch::kFloat32 || !flat.is_contiguous()) {
    throw std::invalid_argument("policy: bind() needs " + std::to_string(parameter_count_) +
                                " contiguous float32 parameters");
  }
  std::int64_t offset = 0;
  const auto view = [&](std::vector<std::int64_t> shape) {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    torch::Tensor part = flat.detach().narrow(0, offset, count).view(shape);
    if (flat_grad.defined()) {
      part.set_requires_grad(true);
      part.mutable_grad() = flat_grad.narrow(0, offset, count).view(shape);
    }
    offset += count;
    return part;
  };
  const auto mlp = [&](std::vector<Linear>& layers) {
    layers.clear();
    std::int64_t width = environment_.observation_elements();
    for (const std::int64_t size : config_.hidden_sizes) {
      torch::Tensor weight = view({size, width});
      layers.push_back({weight, view({size})});
      width = size;
    }
    return width;
  };
  const std::int64_t outputs =
      environment_.discrete() ? environment_.action_count : environment_.action_dims;
  std::int64_t width = 0;
  if (config_.shared_trunk) {
    width = mlp(trunk_);
    torch::Tensor weight = view({outputs + 1, width});
    actor_ = {weight, view({outputs + 1})};
  } else {
    mlp(trunk_);
    width = mlp(critic_trunk_);
    torch::Tensor actor_weight = view({outputs, width});
    torch::Tensor critic_weight = view({1, width});
    actor_ = {actor_weight, view({outputs})};
    critic_ = {critic_weight, view({1})};
  }
  if (!environment_.discrete()) log_std_ = view({outputs});
}

PolicyOutput Policy::forward(const torch::Tensor& observations) const {
  torch::Tensor x = observations.dim() == 2 ? observations : observations.flatten(1);
  if (x.scalar_type() == torch::kUInt8) x = x.to(torch::kFloat32).mul_(1.0F / 255.0F);
  const Activation activation = activation_of(config_.activation);
  const auto run = [&](const std::vector<Linear>& layers) {
    torch::Tensor h = x;
    for (const Linear& layer : layers) {
      h = at::addmm(layer.bias, h, layer.weight.t());
      activate(h, activation);
    }
    return h;
  };
  if (config_.shared_trunk) {
    const torch::Tensor heads = at::addmm(actor_.bias, run(trunk_), actor_.weight.t());
    const std::int64_t outputs = heads.size(1) - 1;
    return {heads.narrow(1, 0, outputs), heads.select(1, outputs)};
  }
  return {at::addmm(actor_.bias, run(trunk_), actor_.weight.t()),
          at::addmm(critic_.bias, run(critic_trunk_), critic_.weight.t()).select(1, 0)};
}

}  // namespace gristmill
