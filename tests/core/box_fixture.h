#pragma once

// A box of two arrays whose content follows from one tag: what is torn shows wherever it is.

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/box.h"
#include "core/segment.h"

namespace gristmill::box_test {

using namespace std::chrono_literals;
using Outcome = Box::PublishOutcome;

inline constexpr std::size_t kWords = 1500;  // per field: several pages, so that a torn copy is a wide target

inline FieldSpecs two_fields() {
  const auto words = static_cast<std::int64_t>(kWords);
  return {{"first", DType::kInt64, {words}}, {"second", DType::kInt64, {words / 3, 3}}};
}

inline std::unique_ptr<Box> make_box(const FieldSpecs& spec = two_fields()) {
  static std::atomic<int> number{0};
  return Box::create(segment_name("box-test", "box" + std::to_string(number++)), spec);
}

// A version whose every word follows from one tag; a mixture of two is noticed wherever it is.
struct Content {
  std::vector<std::int64_t> first, second;

  Content() : first(kWords), second(kWords) {}
  explicit Content(std::int64_t tag) : Content() {
    for (std::size_t i = 0; i < kWords; ++i) {
      first[i] = tag * 1'000'003 + static_cast<std::int64_t>(i);
      second[i] = tag * 1'000'033 - static_cast<std::int64_t>(i);
    }
  }
  std::array<const std::byte*, 2> fields() const {
    return {reinterpret_cast<const std::byte*>(first.data()),
            reinterpret_cast<const std::byte*>(second.data())};
  }
  std::array<std::byte*, 2> out() {
    return {reinterpret_cast<std::byte*>(first.data()), reinterpret_cast<std::byte*>(second.data())};
  }
};

// The tag of a whole version, or -1 when it is torn. Version 0 (zeros) has no tag: 0.
inline std::int64_t tag_of(const std::int64_t* first, const std::int64_t* second) {
  const std::int64_t tag = first[0] / 1'000'003;
  if (tag == 0) {
    for (std::size_t i = 0; i < kWords; ++i) {
      if (first[i] != 0 || second[i] != 0) return -1;
    }
    return 0;
  }
  for (std::size_t i = 0; i < kWords; ++i) {
    if (first[i] != tag * 1'000'003 + static_cast<std::int64_t>(i)) return -1;
    if (second[i] != tag * 1'000'033 - static_cast<std::int64_t>(i)) return -1;
  }
  return tag;
}

inline std::int64_t tag_of(const Box::Pin& pin) {
  return tag_of(reinterpret_cast<const std::int64_t*>(pin.field(0)),
                reinterpret_cast<const std::int64_t*>(pin.field(1)));
}

inline std::int64_t read_tag(Box& box, std::uint64_t* version = nullptr) {
  Content content;
  const std::uint64_t read = box.read_into(content.out());
  if (version != nullptr) *version = read;
  return tag_of(content.first.data(), content.second.data());
}

inline Box::PublishResult publish(Box& box, std::int64_t tag, std::chrono::milliseconds patience = 20s) {
  const Content content(tag);
  return box.publish(content.fields(), Deadline::in(patience));
}

// Publishes version v with tag v until it is killed. One writer at a time may do this.
[[noreturn]] inline void publish_for_ever(Box& box) {
  Content content;
  while (true) {
    content = Content(static_cast<std::int64_t>(box.version()) + 1);
    box.publish(content.fields(), Deadline::never());
  }
}

}  // namespace gristmill::box_test
