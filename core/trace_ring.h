#pragma once

// A ring of the newest spans of time of one process, in shared memory. One writer that never waits; a
// reader who is too slow finds that spans were overwritten and goes on with those that are there.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/measures.h"

namespace gristmill {

// A stage's time, once.
struct TraceSpan {
  std::uint64_t begin_ns = 0;     // monotonic clock
  std::uint64_t duration_ns = 0;  // below 2^56
  Measure stage = Measure::kEnvironment;
  std::uint64_t argument =
      0;  // kCopy, kBatchView: trace_run() of what was moved; kParameters, kPublish: version
};

// Consecutive positions in the trajectory queue, as an argument: 48 bits of the first, 16 of how many (at
// most 65 535 are told).
constexpr std::uint64_t trace_run(std::uint64_t begin, std::uint64_t count) {
  return begin << 16 | (count < 0xffff ? count : 0xffff);
}

// In shared memory, zero-initialised: empty.
struct TraceSlot {
  std::atomic<std::uint64_t> number{0};  // of the span, from 1; 0: being written
  std::atomic<std::uint64_t> begin_ns{0};
  std::atomic<std::uint64_t> what{0};  // duration << 8 | stage
  std::atomic<std::uint64_t> argument{0};
};

// A view. `written` and `slots` are in shared memory; the number of slots is a power of two.
class TraceRing {
 public:
  TraceRing() = default;
  TraceRing(std::atomic<std::uint64_t>* written, TraceSlot* slots, std::size_t size)
      : written_(written), slots_(slots), size_(size) {}

  std::size_t size() const { return size_; }

  // The one writer.
  void push(const TraceSpan& span);

  struct Read {
    std::uint64_t next = 0;  // where the next read goes on
    std::uint64_t lost = 0;  // spans that were overwritten before they were read
    std::vector<TraceSpan> spans;
  };
  // Spans from number `from` on (0: the oldest there is). Any process.
  Read read(std::uint64_t from) const;
  // What a read from the newest on begins with.
  std::uint64_t end() const { return written_->load(std::memory_order_acquire); }

 private:
  std::atomic<std::uint64_t>* written_ = nullptr;
  TraceSlot* slots_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace gristmill
