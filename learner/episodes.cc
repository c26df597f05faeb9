#include "learner/episodes.h"

#include <numeric>
#include <utility>

namespace gristmill {
namespace {

double mean(const std::deque<float>& values) {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

void push(std::deque<float>& values, float value) {
  values.push_back(value);
  if (values.size() > Episodes::kWindow) values.pop_front();
}

}  // namespace

void Episodes::add(const BatchView& batch) {
  const auto returns = batch.field<float>(kEpisodeReturns);
  const auto lengths = batch.field<std::int32_t>(kEpisodeLengths);
  // In the order of time: the batch's trajectories ran side by side.
  for (std::int64_t t = 0; t < batch.unroll; ++t) {
    for (std::int64_t row = 0; row < batch.trajectories; ++row) {
      const auto i = static_cast<std::size_t>(row * batch.unroll + t);
      if (lengths[i] == 0) continue;
      ++finished_;
      push(returns_, returns[i]);
      push(lengths_, static_cast<float>(lengths[i]));
    }
  }
}

void Episodes::restore(std::int64_t finished, std::deque<float> returns, std::deque<float> lengths) {
  finished_ = finished;
  returns_ = std::move(returns);
  lengths_ = std::move(lengths);
}

double Episodes::mean_return() const { return mean(returns_); }
double Episodes::mean_length() const { return mean(lengths_); }

}  // namespace gristmill
