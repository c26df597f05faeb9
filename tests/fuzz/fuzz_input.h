#pragma once

// What the fuzz targets share: reading an input from the front (so that seeds can be written by hand), and
// an invariant that ends the process when it does not hold.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>

namespace gristmill::fuzz {

// Past its end an input reads as zeros.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : rest_(data, size) {}

  bool empty() const { return rest_.empty(); }
  std::uint8_t byte() { return static_cast<std::uint8_t>(number(1)); }
  std::uint16_t half() { return static_cast<std::uint16_t>(number(2)); }
  std::uint64_t word() { return number(8); }
  std::span<const std::uint8_t> bytes(std::size_t most) {
    const auto taken = rest_.first(most < rest_.size() ? most : rest_.size());
    rest_ = rest_.subspan(taken.size());
    return taken;
  }
  std::string text() {
    const auto taken = bytes(rest_.size());
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }

 private:
  std::uint64_t number(std::size_t width) {
    std::uint64_t value = 0;
    const auto taken = bytes(width);
    for (std::size_t i = 0; i < taken.size(); ++i) value |= std::uint64_t{taken[i]} << (8 * i);
    return value;
  }

  std::span<const std::uint8_t> rest_;
};

inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

// Reads every byte, so that one that is not there is noticed.
inline void touch(std::span<const std::byte> bytes) {
  volatile unsigned sum = 0;
  for (const std::byte byte : bytes) sum = sum + static_cast<unsigned>(byte);
}

// Overwrites one of `words`, in one of the ways that damage comes in.
inline void damage_word(Input& input, std::span<std::uint64_t> words) {
  std::uint64_t& word = words[input.half() % words.size()];
  switch (input.byte() % 6) {
    case 0:
      word = input.word();
      return;
    case 1:
      word = input.byte();
      return;
    case 2:
      word += static_cast<std::uint64_t>(static_cast<std::int8_t>(input.byte()));
      return;
    case 3:
      word ^= std::uint64_t{1} << input.byte() % 64;
      return;
    case 4:
      word = words[input.half() % words.size()];
      return;
    default:
      word += std::uint64_t{input.byte()} << input.byte() % 64;
      return;
  }
}

}  // namespace gristmill::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
