#include "core/message_layout.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>

#include "core/segment.h"

namespace gristmill {
namespace {

constexpr std::uint64_t kPage = 4096;
static_assert(Segment::kHeaderBytes % kPage == 0);
// A record's length has 40 bits, and a cursor's position room for twice the ring.
constexpr std::uint64_t kMaxSizeBytes = std::uint64_t{1} << 39;
// A record's word, its padding, and the filler that aligns a large one.
constexpr std::uint64_t kOverhead = 64;

std::uint64_t round_up(std::uint64_t n, std::uint64_t unit) { return (n + unit - 1) / unit * unit; }

std::uint64_t geometry_hash(const MessageLayout& layout) {
  const std::uint64_t numbers[] = {layout.options.max_size_bytes, layout.options.max_messages,
                                   static_cast<std::uint64_t>(layout.options.overflow), layout.payload_bytes};
  return hash_bytes(numbers, sizeof numbers);
}

}  // namespace

MessageLayout MessageLayout::of(const MessageQueueOptions& options) {
  if (options.max_size_bytes < 1 || options.max_size_bytes > kMaxSizeBytes) {
    throw std::invalid_argument("max_size_bytes of " + std::to_string(options.max_size_bytes) +
                                " is out of range: expected 1 to " + std::to_string(kMaxSizeBytes));
  }
  if (options.overflow > Overflow::kLatest) {
    throw std::invalid_argument("overflow " + std::to_string(static_cast<std::uint64_t>(options.overflow)) +
                                ": expected 0 (block), 1 (drop_oldest) or 2 (latest)");
  }
  MessageLayout layout;
  layout.options = options;
  layout.count_limit = MessageCursor::kCountMask;
  if (options.max_messages != 0) layout.count_limit = std::min(layout.count_limit, options.max_messages);
  layout.ring_bytes = round_up(options.max_size_bytes + kOverhead, kPage);
  layout.largest_message = layout.ring_bytes - kOverhead;
  layout.leases_offset = round_up(sizeof(MessageControl), 64);
  layout.ring_offset = round_up(layout.leases_offset + kLeases * sizeof(Lease), kPage);
  layout.payload_bytes = layout.ring_offset + layout.ring_bytes;
  return layout;
}

std::uint64_t MessageLayout::hash() {
  const std::uint64_t facts[] = {3,  // raise it when the meaning of a word changes
                                 sizeof(MessageControl),
                                 sizeof(Lease),
                                 sizeof(RobustLock),
                                 kLeases,
                                 MessageCursor::kCountBits,
                                 RecordWord::kMark,
                                 kOverhead,
                                 kPage};
  return hash_bytes(facts, sizeof facts);
}

void MessageLayout::write(std::byte* payload) const {
  auto* control = new (payload) MessageControl();
  control->max_size_bytes = options.max_size_bytes;
  control->max_messages = options.max_messages;
  control->overflow = static_cast<std::uint64_t>(options.overflow);
  control->geometry_hash = geometry_hash(*this);
  control->put_lock.init();
  control->get_lock.init();
  for (int i = 0; i < kLeases; ++i) new (payload + leases_offset + i * sizeof(Lease)) Lease();
}

MessageLayout MessageLayout::read(const std::byte* payload, std::size_t payload_bytes) {
  if (payload_bytes < sizeof(MessageControl)) {
    throw std::invalid_argument(std::to_string(payload_bytes) + " bytes are no message queue");
  }
  // Each word is read once: what is checked is what is used.
  std::uint64_t numbers[4];
  static_assert(offsetof(MessageControl, geometry_hash) == 3 * sizeof(std::uint64_t));
  std::memcpy(numbers, payload, sizeof numbers);
  const auto [max_size_bytes, max_messages, overflow, hash] = numbers;
  MessageQueueOptions options;
  options.max_size_bytes = max_size_bytes;
  options.max_messages = max_messages;
  options.overflow = static_cast<Overflow>(overflow);
  MessageLayout layout = of(options);
  if (layout.payload_bytes != payload_bytes) {
    throw std::invalid_argument("its options need " + std::to_string(layout.payload_bytes) +
                                " bytes, but it has " + std::to_string(payload_bytes));
  }
  if (hash != geometry_hash(layout)) {
    throw std::invalid_argument("the checksum of its options does not fit");
  }
  return layout;
}

}  // namespace gristmill
