#include "core/trajectory_queue.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/fault_point.h"
#include "core/ring_mapping.h"
#include "core/segment.h"
#include "core/trajectory_consumer.h"
#include "core/trajectory_layout.h"
#include "core/trajectory_places.h"

namespace gristmill {
namespace {

using Poll = TrajectoryConsumer::Poll;

Deadline slice_of(Deadline deadline) {
  return deadline.left() <= EventCount::kSlice ? deadline : Deadline::in(EventCount::kSlice);
}

}  // namespace

struct TrajectoryQueue::Impl {
  // One field's ring in this process.
  struct Ring {
    RingLayout layout;
    RingMapping mapping;
    std::byte* data = nullptr;

    std::byte* at(std::uint64_t position) const { return data + position % layout.places * layout.bytes; }
    void copy_in(std::uint64_t position, std::uint64_t count, const std::byte* from) const;
    void join_end(std::uint64_t position, std::uint64_t count) const;
  };

  Impl(Segment&& owned, QueueLayout&& checked)
      : segment(std::move(owned)),
        layout(std::move(checked)),
        places(segment.payload(), layout),
        consumer(places),
        lease_hint(static_cast<int>(ProcessIdentity::self().pid % QueueLayout::kLeases)) {
    for (const RingLayout& ring : layout.rings) rings.push_back(map(ring));
  }

  Ring map(const RingLayout& ring) const {
    // A field of no bytes needs an address all the same.
    if (ring.ring_bytes == 0 || !ring.mirrored) {
      return {ring, {}, segment.payload() + (ring.ring_bytes == 0 ? 0 : ring.offset)};
    }
    try {
      RingMapping mapping(segment.fd(), Segment::kHeaderBytes + ring.offset, ring.ring_bytes,
                          segment.lost_flag());
      std::byte* const data = mapping.data();
      return {ring, std::move(mapping), data};
    } catch (const std::system_error& error) {
      throw SegmentError(SegmentError::Reason::kSystem,
                         "trajectory queue '" + segment.name() + "': " + error.what());
    }
  }

  Segment segment;
  QueueLayout layout;
  TrajectoryPlaces places;
  TrajectoryConsumer consumer;
  std::vector<Ring> rings;
  std::atomic<int> lease_hint;
};

void TrajectoryQueue::Impl::Ring::copy_in(std::uint64_t position, std::uint64_t count,
                                          const std::byte* from) const {
  if (layout.bytes == 0) return;
  std::uint64_t before_end = count;
  if (!layout.mirrored) before_end = std::min(count, layout.places - position % layout.places);
  std::memcpy(at(position), from, before_end * layout.bytes);
  if (before_end != count) {
    std::memcpy(data, from + before_end * layout.bytes, (count - before_end) * layout.bytes);
  }
}

// Only for a ring that is not mirrored: places beyond its end are the consumer's own. Two runs that
// cross the end are a whole capacity apart, so at most one of them is out at a time.
void TrajectoryQueue::Impl::Ring::join_end(std::uint64_t position, std::uint64_t count) const {
  if (layout.mirrored || layout.bytes == 0) return;
  const std::uint64_t end = position % layout.places + count;
  if (end <= layout.places) return;
  std::memcpy(data + layout.places * layout.bytes, data, (end - layout.places) * layout.bytes);
}

TrajectoryQueue::TrajectoryQueue(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

TrajectoryQueue::~TrajectoryQueue() { impl_->consumer.resign(); }

std::unique_ptr<TrajectoryQueue> TrajectoryQueue::create(const std::string& name, const FieldSpecs& spec,
                                                         std::int64_t capacity) {
  QueueLayout layout = QueueLayout::of(spec, capacity);
  Segment segment =
      Segment::create(name, SegmentKind::kTrajectoryQueue, QueueLayout::hash(), layout.payload_bytes);
  layout.write(segment.payload());
  auto impl = std::make_unique<Impl>(std::move(segment), std::move(layout));
  impl->segment.mark_ready();
  return std::unique_ptr<TrajectoryQueue>(new TrajectoryQueue(std::move(impl)));
}

std::unique_ptr<TrajectoryQueue> TrajectoryQueue::attach(const std::string& name, Deadline deadline) {
  Segment segment = Segment::attach(name, SegmentKind::kTrajectoryQueue, QueueLayout::hash(), deadline);
  try {
    QueueLayout layout = QueueLayout::read(segment.payload(), segment.payload_bytes());
    auto impl = std::make_unique<Impl>(std::move(segment), std::move(layout));
    return std::unique_ptr<TrajectoryQueue>(new TrajectoryQueue(std::move(impl)));
  } catch (const std::invalid_argument& error) {
    throw SegmentError(SegmentError::Reason::kCorrupt,
                       "trajectory queue '" + name + "' is corrupt: " + error.what());
  }
}

std::size_t TrajectoryQueue::bytes_needed(const FieldSpecs& spec, std::int64_t capacity) {
  return Segment::kHeaderBytes + QueueLayout::of(spec, capacity).payload_bytes;
}

const FieldSpecs& TrajectoryQueue::spec() const { return impl_->layout.spec; }

std::int64_t TrajectoryQueue::capacity() const { return static_cast<std::int64_t>(impl_->layout.capacity); }

const std::string& TrajectoryQueue::name() const { return impl_->segment.name(); }

TrajectoryQueue::PutResult TrajectoryQueue::put_many(std::span<const std::byte* const> fields,
                                                     std::int64_t count, Deadline deadline) {
  if (fields.size() != impl_->rings.size()) {
    throw std::invalid_argument("put_many was given " + std::to_string(fields.size()) +
                                " fields: expected the " + std::to_string(impl_->rings.size()) +
                                " of the queue's spec");
  }
  if (count < 0) throw std::invalid_argument("put_many of " + std::to_string(count) + " trajectories");
  for (std::size_t f = 0; f < fields.size(); ++f) {
    if (fields[f] == nullptr && impl_->rings[f].layout.bytes > 0 && count > 0) {
      throw std::invalid_argument("put_many was given no data for field '" + spec()[f].name + "'");
    }
  }
  const TrajectoryPlaces& places = impl_->places;
  EventCount& space = places.control().space;
  PutResult result;
  bool counted = false;
  while (result.put < count) {
    if (impl_->segment.lost()) [[unlikely]] {
      result.outcome = Outcome::kBroken;
      return result;
    }
    int hint = impl_->lease_hint.load(std::memory_order_relaxed);
    const Claim claim = places.claim(static_cast<std::uint64_t>(count - result.put), deadline, &hint);
    impl_->lease_hint.store(hint, std::memory_order_relaxed);
    switch (claim.outcome) {
      case Claim::Outcome::kOk:
        for (std::size_t f = 0; f < fields.size(); ++f) {
          const Impl::Ring& ring = impl_->rings[f];
          if (ring.layout.bytes == 0) continue;
          const auto done = static_cast<std::size_t>(result.put);
          ring.copy_in(claim.begin, claim.count, fields[f] + done * ring.layout.bytes);
          GRISTMILL_FAULT_POINT("put.copied_field");
        }
        places.commit(claim);
        if (impl_->segment.lost()) continue;
        if (claim.begin != result.run_begin + static_cast<std::uint64_t>(result.run_count)) {
          result.run_begin = claim.begin;
          result.run_count = 0;
        }
        result.run_count += static_cast<std::int64_t>(claim.count);
        result.put += static_cast<std::int64_t>(claim.count);
        continue;
      case Claim::Outcome::kClosed:
        result.outcome = Outcome::kClosed;
        return result;
      case Claim::Outcome::kBroken:
        result.outcome = Outcome::kBroken;
        return result;
      case Claim::Outcome::kTimedOut:
        result.outcome = Outcome::kTimedOut;
        return result;
      case Claim::Outcome::kFull:
      case Claim::Outcome::kNoLease:
        break;
    }
    if (!counted) places.control().put_waits.fetch_add(1, std::memory_order_relaxed);
    counted = true;
    if (deadline.passed()) {
      // A dead producer's place, or lease, may be all that is in the way.
      if (places.recover() > 0) continue;
      result.outcome = Outcome::kTimedOut;
      return result;
    }
    const auto start = Deadline::Clock::now();
    if (claim.outcome == Claim::Outcome::kNoLease) {
      // As many puts as there are leases are at their copies: each is soon done, or dead.
      places.recover();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    } else if (!space.await(slice_of(deadline), [&] { return places.may_claim(); })) {
      places.recover();
    }
    result.waited += Deadline::Clock::now() - start;
  }
  return result;
}

TrajectoryQueue::GetResult TrajectoryQueue::get_many(std::int64_t n, Deadline deadline) {
  if (n < 1 || n > capacity()) {
    throw std::invalid_argument("get_many of " + std::to_string(n) +
                                " trajectories: expected 1 to the queue's capacity of " +
                                std::to_string(capacity()));
  }
  TrajectoryConsumer& consumer = impl_->consumer;
  const TrajectoryPlaces& places = impl_->places;
  QueueControl& control = places.control();
  GetResult result;
  if (!consumer.become() || impl_->segment.lost()) {
    result.outcome = Outcome::kBroken;
    return result;
  }
  const auto wanted = static_cast<std::uint64_t>(n);
  std::uint64_t count = 0;
  Poll poll = consumer.poll(wanted, &count);
  if (poll == Poll::kWaiting) control.get_waits.fetch_add(1, std::memory_order_relaxed);
  while (poll == Poll::kWaiting) {
    // SYNC POINT: before the fence in prepare(); pairs with commit()'s load after its fence.
    control.wanted.store(consumer.cursor() + wanted, std::memory_order_relaxed);
    GRISTMILL_FAULT_POINT("get.wanted");
    control.ready.await(slice_of(deadline), [&] {
      poll = consumer.poll(wanted, &count);
      return poll != Poll::kWaiting;
    });
    if (poll != Poll::kWaiting) break;
    // Also in the last slice: after close(), a dead claimant is all there may be to wait for.
    if (places.recover() == 0 && deadline.passed()) break;
    if (impl_->segment.lost()) break;
  }
  if (impl_->segment.lost()) poll = Poll::kBroken;
  switch (poll) {
    case Poll::kWaiting:
      result.outcome = Outcome::kTimedOut;
      return result;
    case Poll::kDrained:
      result.outcome = Outcome::kClosed;
      return result;
    case Poll::kBroken:
      result.outcome = Outcome::kBroken;
      return result;
    case Poll::kReady:
      break;
  }
  if (!consumer.take(count, &result.batch.begin_)) {
    result.outcome = Outcome::kBroken;
    return result;
  }
  GRISTMILL_FAULT_POINT("get.taken");
  for (const Impl::Ring& ring : impl_->rings) ring.join_end(result.batch.begin_, count);
  result.batch.size_ = static_cast<std::int64_t>(count);
  result.batch.queue_ = this;
  return result;
}

void TrajectoryQueue::close() {
  QueueControl& control = impl_->places.control();
  control.tail.fetch_or(1, std::memory_order_acq_rel);
  GRISTMILL_FAULT_POINT("close.stored");
  control.space.notify_all();
  control.ready.notify_all();
}

bool TrajectoryQueue::closed() const { return impl_->places.tail().closed; }

std::int64_t TrajectoryQueue::size() const {
  // Head first, so that it is never beyond the tail.
  const std::uint64_t head = impl_->places.control().head.load(std::memory_order_acquire);
  const std::uint64_t tail = impl_->places.tail().position;
  return static_cast<std::int64_t>(std::min(tail - head, impl_->layout.capacity));
}

TrajectoryQueueStatistics TrajectoryQueue::statistics() const {
  // Counted from the words, not by producers: one killed at its commit leaves no miscount.
  const QueueControl& control = impl_->places.control();
  const std::uint64_t head = control.head.load(std::memory_order_acquire);
  const std::uint64_t tail = head + static_cast<std::uint64_t>(size());
  const std::uint64_t skipped = control.skipped.load(std::memory_order_relaxed);
  std::uint64_t ready = 0;
  std::uint64_t abandoned = 0;
  for (std::uint64_t p = head; p != tail; ++p) {
    const Place place = Place::unpack(impl_->places.word(p).load(std::memory_order_relaxed));
    if (place.position != p) continue;
    ready += place.state == PlaceState::kReady ? 1 : 0;
    abandoned += place.state == PlaceState::kAbandoned ? 1 : 0;
  }
  TrajectoryQueueStatistics statistics;
  statistics.gets = head - std::min(head, skipped);
  statistics.puts = statistics.gets + ready;
  statistics.refilled = control.refilled.load(std::memory_order_relaxed);
  statistics.abandoned = statistics.refilled + skipped + abandoned;
  statistics.put_waits = control.put_waits.load(std::memory_order_relaxed);
  statistics.get_waits = control.get_waits.load(std::memory_order_relaxed);
  statistics.owner_deaths = control.lock.owner_deaths();
  return statistics;
}

std::int64_t TrajectoryQueue::recover() { return impl_->places.recover(); }

void TrajectoryQueue::unlink() noexcept { impl_->segment.unlink(); }

TrajectoryQueue::Batch::Batch(Batch&& other) noexcept { *this = std::move(other); }

TrajectoryQueue::Batch& TrajectoryQueue::Batch::operator=(Batch&& other) noexcept {
  if (this != &other) {
    release();
    queue_ = std::exchange(other.queue_, nullptr);
    begin_ = std::exchange(other.begin_, 0);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

std::byte* TrajectoryQueue::Batch::field(std::size_t index) const {
  if (queue_ == nullptr) throw std::logic_error("field() of a batch that is empty or released");
  return queue_->impl_->rings.at(index).at(begin_);
}

void TrajectoryQueue::Batch::release() {
  if (queue_ == nullptr) return;
  queue_->impl_->consumer.release(begin_, static_cast<std::uint64_t>(size_));
  queue_ = nullptr;
  size_ = 0;
}

}  // namespace gristmill
