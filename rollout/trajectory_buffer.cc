#include "rollout/trajectory_buffer.h"

#include <algorithm>
#include <cstring>

namespace gristmill {
namespace {

std::size_t bytes_of_step(const FieldSpec& spec) {
  return spec.shape.empty() ? 0 : spec.bytes() / static_cast<std::size_t>(spec.shape.front());
}

}  // namespace

TrajectoryBuffer::TrajectoryBuffer(const EnvironmentSpec& environment, std::int64_t count,
                                   std::int64_t unroll)
    : specs_(trajectory_fields(environment, unroll)), count_(count), unroll_(unroll) {
  for (std::size_t f = 0; f < specs_.size(); ++f) {
    step_bytes_[f] = bytes_of_step(specs_[f]);
    storage_.emplace_back(specs_[f].bytes() * static_cast<std::size_t>(count));
    pointers_.push_back(storage_.back().data());
  }
}

Rows TrajectoryBuffer::at(TrajectoryField field, std::int64_t t) const {
  auto* data = const_cast<std::byte*>(pointers_[field]);  // storage_ is ours and not const
  return {data + static_cast<std::size_t>(t) * step_bytes_[field],
          static_cast<std::ptrdiff_t>(specs_[field].bytes())};
}

void TrajectoryBuffer::carry_observations() {
  const Rows last = at(kObservations, unroll_);
  const Rows first = at(kObservations, 0);
  for (std::int64_t i = 0; i < count_; ++i) {
    std::memcpy(first.row(i), last.row(i), step_bytes_[kObservations]);
  }
}

void TrajectoryBuffer::clear_ends() {
  for (const TrajectoryField field : {kFinalValues, kEpisodeReturns, kEpisodeLengths}) {
    std::ranges::fill(storage_[field], std::byte{0});
  }
}

}  // namespace gristmill
