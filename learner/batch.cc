#include "learner/batch.h"

#include <algorithm>
#include <cstring>
#include <tuple>

namespace gristmill {

BatchView BatchView::slice(std::int64_t begin, std::int64_t count) const {
  BatchView part = *this;
  part.trajectories = count;
  for (std::size_t f = 0; f < fields.size(); ++f) {
    part.fields[f] += static_cast<std::size_t>(begin) * (*specs)[f].bytes();
  }
  return part;
}

BatchView view_of(const TrajectoryQueue& queue, const TrajectoryQueue::Batch& batch) {
  BatchView view;
  view.specs = &queue.spec();
  view.trajectories = batch.size();
  view.unroll = queue.spec()[kRewards].shape.front();
  for (std::size_t f = 0; f < view.fields.size(); ++f) view.fields[f] = batch.field(f);
  return view;
}

void GatheredBatch::gather(const BatchView& from, std::span<const std::int64_t> rows) {
  view_ = from;
  view_.trajectories = static_cast<std::int64_t>(rows.size());
  for (std::size_t f = 0; f < storage_.size(); ++f) {
    const std::size_t bytes = (*from.specs)[f].bytes();
    storage_[f].resize(bytes * rows.size());
    std::byte* to = storage_[f].data();
    for (const std::int64_t row : rows) {
      std::memcpy(to, from.fields[f] + static_cast<std::size_t>(row) * bytes, bytes);
      to += bytes;
    }
    view_.fields[f] = storage_[f].data();
  }
}

std::vector<std::int64_t> choose_rows(const BatchView& batch, std::int64_t oldest, bool ordered) {
  const auto versions = batch.field<std::int64_t>(kVersion);
  std::vector<std::int64_t> rows;
  rows.reserve(versions.size());
  for (std::size_t i = 0; i < versions.size(); ++i) {
    if (versions[i] >= oldest) rows.push_back(static_cast<std::int64_t>(i));
  }
  if (ordered) {
    const auto workers = batch.field<std::int32_t>(kWorker);
    const auto slots = batch.field<std::int32_t>(kSlot);
    const auto key = [&](std::int64_t row) {
      const auto i = static_cast<std::size_t>(row);
      return std::tuple(workers[i], slots[i], versions[i]);
    };
    std::ranges::stable_sort(rows, [&](std::int64_t a, std::int64_t b) { return key(a) < key(b); });
  }
  return rows;
}

bool is_identity(std::span<const std::int64_t> rows, std::int64_t count) {
  if (static_cast<std::int64_t>(rows.size()) != count) return false;
  for (std::int64_t i = 0; i < count; ++i) {
    if (rows[static_cast<std::size_t>(i)] != i) return false;
  }
  return true;
}

}  // namespace gristmill
