#pragma once

// Messages that tell whether they are whole: every byte is a function of the tag and the length.

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/message_queue.h"
#include "core/segment.h"

namespace gristmill {

using MessageBytes = std::vector<std::byte>;
using MessageTags = std::vector<std::uint64_t>;

inline std::byte message_byte(std::uint64_t tag, std::size_t i, std::size_t length) {
  return static_cast<std::byte>((tag * 0x9E3779B97F4A7C15ull + i * 0xBF58476D1CE4E5B9ull + length) >> 37);
}

// At least 8 bytes: the tag comes first.
inline MessageBytes message_of(std::uint64_t tag, std::size_t length) {
  MessageBytes message(length);
  std::memcpy(message.data(), &tag, sizeof tag);
  for (std::size_t i = sizeof tag; i < length; ++i) message[i] = message_byte(tag, i, length);
  return message;
}

// Its tag; nullopt when it is torn.
inline std::optional<std::uint64_t> tag_of(std::span<const std::byte> message) {
  std::uint64_t tag = 0;
  if (message.size() < sizeof tag) return std::nullopt;
  std::memcpy(&tag, message.data(), sizeof tag);
  for (std::size_t i = sizeof tag; i < message.size(); ++i) {
    if (message[i] != message_byte(tag, i, message.size())) return std::nullopt;
  }
  return tag;
}

// Small, with padding, large, and several pages: by the tag, so that every test meets each.
inline std::size_t length_of(std::uint64_t tag) {
  constexpr std::size_t kLengths[] = {8, 22, 24, 100, 1500, 5000, 9000};
  return kLengths[tag % 7];
}

inline std::unique_ptr<MessageQueue> fresh_message_queue(MessageQueueOptions options) {
  static int number = 0;
  return MessageQueue::create(segment_name("message-queue-test", "m" + std::to_string(number++)), options);
}
inline std::unique_ptr<MessageQueue> fresh_message_queue(std::uint64_t max_size_bytes = 1 << 16,
                                                         std::uint64_t max_messages = 0,
                                                         Overflow overflow = Overflow::kBlock) {
  MessageQueueOptions options;
  options.max_size_bytes = max_size_bytes;
  options.max_messages = max_messages;
  options.overflow = overflow;
  return fresh_message_queue(options);
}

inline MessageQueue::Outcome put_tag(MessageQueue& queue, std::uint64_t tag,
                                     Deadline deadline = Deadline::now()) {
  return queue.put(message_of(tag, length_of(tag)), deadline).outcome;
}

constexpr std::uint64_t kTorn = ~std::uint64_t{0};

// Tags of what is ready; kTorn for what is torn.
inline MessageTags get_tags(MessageQueue& queue, std::int64_t max = 1'000'000,
                            Deadline deadline = Deadline::now()) {
  MessageBuffer buffer;
  queue.get_many(max, MessageQueue::kNoLimit, buffer, deadline);
  MessageTags tags;
  for (std::size_t i = 0; i < buffer.size(); ++i) tags.push_back(tag_of(buffer[i]).value_or(kTorn));
  return tags;
}

inline MessageTags tags_of(const MessageQueue::Taken& taken) {
  MessageTags tags;
  for (std::size_t i = 0; i < taken.size(); ++i) tags.push_back(tag_of(taken[i]).value_or(kTorn));
  return tags;
}

inline MessageTags tags_between(std::uint64_t first, std::uint64_t end) {
  MessageTags tags;
  for (std::uint64_t tag = first; tag < end; ++tag) tags.push_back(tag);
  return tags;
}

}  // namespace gristmill
