#pragma once

// A box of scalars of each type and an array, with updates that carry one tag through all.

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "core/box.h"
#include "core/segment.h"

namespace gristmill::box_test {

using namespace std::chrono_literals;

inline constexpr std::size_t kElements = 900;

// 0 flag, 1 step, 2 rate, 3 phase, 4 raw
inline ScalarSpecs scalars() {
  return {{"flag", ScalarType::kBool, 0},
          {"step", ScalarType::kInt64, 0},
          {"rate", ScalarType::kFloat64, 0},
          {"phase", ScalarType::kText, 21},
          {"raw", ScalarType::kBytes, 8}};
}

class BoxScalars : public testing::Test {
 protected:
  BoxScalars() {
    static int number = 0;
    box_ = Box::create(segment_name("box-scalars-test", "box" + std::to_string(number++)),
                       {{"data", DType::kInt64, {static_cast<std::int64_t>(kElements)}}}, scalars());
  }

  // Step, rate and every element of data carry one tag, in one version.
  Box::PublishResult update_all(Box& box, std::int64_t tag) {
    const std::vector<std::int64_t> data(kElements, tag);
    const std::array<std::uint64_t, 2> words = {static_cast<std::uint64_t>(tag),
                                                std::bit_cast<std::uint64_t>(static_cast<double>(tag))};
    const Box::Words change{box.first_word(1), words};
    const std::array arrays = {reinterpret_cast<const std::byte*>(data.data())};
    return box.update({&change, 1}, arrays, Deadline::in(20s));
  }
  // The tag, or -1 for a mixture.
  static std::int64_t read_all(Box& box, std::uint64_t* version = nullptr) {
    std::vector<std::int64_t> data(kElements);
    std::vector<std::uint64_t> words(box.words());
    const std::array out = {reinterpret_cast<std::byte*>(data.data())};
    const std::uint64_t read = box.read_into(out, words);
    if (version != nullptr) *version = read;
    const auto tag = static_cast<std::int64_t>(words[box.first_word(1)]);
    if (std::bit_cast<double>(words[box.first_word(2)]) != static_cast<double>(tag)) return -1;
    return data == std::vector<std::int64_t>(kElements, tag) ? tag : -1;
  }

  std::unique_ptr<Box> box_;
};

}  // namespace gristmill::box_test
