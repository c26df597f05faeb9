#include "core/trace_ring.h"

#include <algorithm>

namespace gristmill {

void TraceRing::push(const TraceSpan& span) {
  const std::uint64_t number = written_->load(std::memory_order_relaxed);
  TraceSlot& slot = slots_[number & (size_ - 1)];
  // The words are stored with release (free on x86), so that none of them can be seen before the 0.
  slot.number.store(0, std::memory_order_relaxed);
  slot.begin_ns.store(span.begin_ns, std::memory_order_release);
  slot.what.store(span.duration_ns << 8 | static_cast<std::uint64_t>(span.stage), std::memory_order_release);
  slot.argument.store(span.argument, std::memory_order_release);
  // Pair with the acquiring loads in read().
  slot.number.store(number + 1, std::memory_order_release);
  written_->store(number + 1, std::memory_order_release);
}

TraceRing::Read TraceRing::read(std::uint64_t from) const {
  Read result;
  const std::uint64_t end = this->end();
  // A restarted process begins anew, and damaged memory may hold anything.
  const std::uint64_t begin = std::clamp(from, end - std::min<std::uint64_t>(end, size_), end);
  result.next = end;
  result.lost = begin > from ? begin - from : 0;
  result.spans.reserve(static_cast<std::size_t>(end - begin));
  for (std::uint64_t number = begin; number != end; ++number) {
    const TraceSlot& slot = slots_[number & (size_ - 1)];
    const bool there = slot.number.load(std::memory_order_acquire) == number + 1;
    const std::uint64_t begin_ns = slot.begin_ns.load(std::memory_order_acquire);
    const std::uint64_t what = slot.what.load(std::memory_order_acquire);
    const std::uint64_t argument = slot.argument.load(std::memory_order_acquire);
    const std::uint64_t stage = what & 0xff;
    // The acquiring loads keep this one after them: equal means that nobody wrote meanwhile.
    if (!there || slot.number.load(std::memory_order_relaxed) != number + 1 || stage >= kStageCount) {
      ++result.lost;
      continue;
    }
    result.spans.push_back({begin_ns, what >> 8, static_cast<Measure>(stage), argument});
  }
  return result;
}

}  // namespace gristmill
