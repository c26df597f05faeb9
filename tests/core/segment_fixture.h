#pragma once

// What tests of Segment share: names of this process's own, and the SegmentError of a call.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <string>

#include "core/segment.h"
#include "core/segment_name.h"

namespace gristmill::segment_test {

using namespace std::chrono_literals;
using Reason = SegmentError::Reason;
inline constexpr auto kKind = SegmentKind::kBox;
inline constexpr std::uint64_t kLayout = 0x1234;

inline std::string fresh_name() {
  static int number = 0;
  return segment_name("segment-test", "s" + std::to_string(number++));
}

inline std::string path_of(const std::string& name) { return "/dev/shm" + name; }

inline bool exists(const std::string& name) { return ::access(path_of(name).c_str(), F_OK) == 0; }

// The SegmentError of `body`, which must throw one.
inline SegmentError error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const SegmentError& error) {
    return error;
  }
  ADD_FAILURE() << "no SegmentError";
  return {Reason::kSystem, ""};
}

inline Segment attach(const std::string& name, Deadline deadline = Deadline::now()) {
  return Segment::attach(name, kKind, kLayout, deadline);
}

}  // namespace gristmill::segment_test
