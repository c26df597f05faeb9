#include "rollout/actor.h"

#include <algorithm>
#include <cmath>

namespace gristmill {
namespace {

torch::ScalarType scalar_type(DType dtype) {
  return dtype == DType::kUInt8 ? torch::kUInt8 : torch::kFloat32;
}

float& float_at(Rows rows, std::int64_t i) { return *reinterpret_cast<float*>(rows.row(i)); }

}  // namespace

torch::Tensor Actor::tensor_of(Rows observations, std::int64_t count) const {
  const EnvironmentSpec& spec = policy_.environment();
  const std::int64_t elements = spec.observation_elements();
  const auto item = static_cast<std::int64_t>(dtype_size(spec.observation_dtype));
  return torch::from_blob(observations.data, {count, elements}, {observations.stride / item, 1},
                          torch::TensorOptions().dtype(scalar_type(spec.observation_dtype)));
}

void Actor::act(Rows observations, std::int64_t count, const ActRows& out, bool greedy) {
  const c10::InferenceMode inference;
  const PolicyOutput output = policy_.forward(tensor_of(observations, count));
  const std::int64_t stride = output.action_parameters.stride(0);
  const std::int64_t width = output.action_parameters.size(1);
  const float* parameters = output.action_parameters.const_data_ptr<float>();
  const float* values = output.values.const_data_ptr<float>();
  const std::int64_t value_stride = output.values.stride(0);
  const bool discrete = policy_.environment().discrete();
  const float* log_std = discrete ? nullptr : policy_.log_std().const_data_ptr<float>();

  for (std::int64_t i = 0; i < count; ++i, parameters += stride) {
    float_at(out.values, i) = values[i * value_stride];
    if (discrete) {
      const float highest = *std::max_element(parameters, parameters + width);
      float sum = 0;
      for (std::int64_t a = 0; a < width; ++a) sum += std::exp(parameters[a] - highest);
      std::int64_t action = 0;
      if (greedy) {
        action = std::max_element(parameters, parameters + width) - parameters;
      } else {
        auto left = static_cast<float>(random_.uniform()) * sum;
        for (; action < width - 1; ++action) {
          left -= std::exp(parameters[action] - highest);
          if (left < 0) break;
        }
      }
      *reinterpret_cast<std::int32_t*>(out.actions.row(i)) = static_cast<std::int32_t>(action);
      float_at(out.log_probs, i) = parameters[action] - highest - std::log(sum);
    } else {
      auto* action = reinterpret_cast<float*>(out.actions.row(i));
      float log_prob = 0;
      for (std::int64_t a = 0; a < width; ++a) {
        const float z = greedy ? 0.0F : random_.normal();
        action[a] = parameters[a] + z * std::exp(log_std[a]);
        log_prob -= 0.5F * z * z + log_std[a] + 0.91893853F;  // log sqrt(2 pi)
      }
      float_at(out.log_probs, i) = log_prob;
    }
  }
}

void Actor::values(Rows observations, std::int64_t count, Rows out) {
  const c10::InferenceMode inference;
  const torch::Tensor values = policy_.forward(tensor_of(observations, count)).values;
  const float* data = values.const_data_ptr<float>();
  for (std::int64_t i = 0; i < count; ++i) float_at(out, i) = data[i * values.stride(0)];
}

}  // namespace gristmill
