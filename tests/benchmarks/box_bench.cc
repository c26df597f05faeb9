// What a pin costs, and a publish and a read beside a memcpy of the same size and a copy by
// core/shared_copy.h ("ours"). Prints medians of five rounds and their extremes; asserts nothing.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <vector>

#include "core/box.h"
#include "core/segment.h"
#include "core/shared_copy.h"

namespace {

using namespace gristmill;

// Nanoseconds per call.
template <class Body>
void measure(const char* what, std::size_t bytes, int calls, Body body) {
  std::array<double, 5> rounds{};
  for (double& round : rounds) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) body();
    round =
        std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count() / calls;
  }
  std::sort(rounds.begin(), rounds.end());
  std::printf("%-10s %11zu bytes  %12.1f ns  (%.1f to %.1f)\n", what, bytes, rounds[2], rounds.front(),
              rounds.back());
}

}  // namespace

int main() {
  {
    const auto box = Box::create(segment_name("box-bench", "scalars"), {},
                                 {{"rate", ScalarType::kFloat64, 0}, {"step", ScalarType::kInt64, 0}});
    constexpr int kCalls = 1'000'000;
    measure("read one", 8, kCalls, [&] { asm volatile("" : : "r"(box->read_int(1)) : "memory"); });
    measure("write one", 8, kCalls, [&] { box->write_int(1, 7, Deadline::never()); });
    const std::array<std::uint64_t, 2> two = {1, 2};
    const Box::Words words{0, two};
    measure("update two", 16, kCalls, [&] { box->update({&words, 1}, {}, Deadline::never()); });
  }
  for (const std::size_t bytes :
       {std::size_t{8}, std::size_t{40} << 10, std::size_t{1} << 20, std::size_t{100} << 20}) {
    const auto box = Box::create(segment_name("box-bench", "box" + std::to_string(bytes)),
                                 {{"data", DType::kUInt8, {static_cast<std::int64_t>(bytes)}}});
    std::vector<std::byte> mine(bytes, std::byte{1}), other(bytes, std::byte{2});
    const int calls =
        static_cast<int>(std::clamp<std::size_t>((std::size_t{1} << 29) / (bytes + 4096), 5, 50'000));
    const std::array<const std::byte*, 1> in = {mine.data()};
    const std::array<std::byte*, 1> out = {other.data()};
    measure("memcpy", bytes, calls, [&] {
      std::memcpy(other.data(), mine.data(), bytes);
      asm volatile("" : : "r"(other.data()) : "memory");
    });
    measure("ours", bytes, calls, [&] { copy_from_still(other.data(), mine.data(), bytes); });
    measure("publish", bytes, calls, [&] { box->publish(in, Deadline::never()); });
    measure("read_into", bytes, calls, [&] { box->read_into(out); });
    measure("pin", bytes, 200'000, [&] { box->pin().release(); });
    measure("version", bytes, 200'000, [&] { asm volatile("" : : "r"(box->version())); });
  }
}
