// Runs a fuzz target without a fuzzer: over files of its corpus, and over mutations of them that are the same
// every time. Usage: TARGET [--mutations=N] PATH…

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz_input.h"

namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<std::uint8_t>;

constexpr unsigned kPatience = 100;  // seconds, for all of it

void run(const Bytes& input) {
  // A copy of its very length, so that a read beyond it is noticed.
  const Bytes exact(input);
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

std::vector<Bytes> read(const fs::path& path) {
  std::vector<fs::path> files;
  if (fs::is_directory(path)) {
    for (const auto& entry : fs::directory_iterator(path)) files.push_back(entry.path());
    std::sort(files.begin(), files.end());
  } else {
    files.push_back(path);
  }
  std::vector<Bytes> inputs;
  for (const fs::path& file : files) {
    std::ifstream stream(file, std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
  }
  return inputs;
}

Bytes mutated(const std::vector<Bytes>& inputs, std::mt19937_64& random) {
  Bytes input = inputs[random() % inputs.size()];
  for (std::uint64_t n = 1 + random() % 6; n > 0; --n) {
    const std::size_t at = input.empty() ? 0 : random() % input.size();
    const auto where = input.begin() + static_cast<std::ptrdiff_t>(at);
    switch (random() % 5) {
      case 0:
        if (!input.empty()) *where = static_cast<std::uint8_t>(random());
        break;
      case 1:
        if (!input.empty()) *where ^= static_cast<std::uint8_t>(1u << random() % 8);
        break;
      case 2:
        input.insert(where, static_cast<std::uint8_t>(random()));
        break;
      case 3:
        if (!input.empty()) input.erase(where);
        break;
      default: {
        const Bytes& other = inputs[random() % inputs.size()];
        if (other.empty()) break;
        const std::size_t from = random() % other.size();
        const std::size_t count = 1 + random() % std::min<std::size_t>(other.size() - from, 32);
        const auto begin = other.begin() + static_cast<std::ptrdiff_t>(from);
        const Bytes piece(begin, begin + static_cast<std::ptrdiff_t>(count));
        input.insert(where, piece.begin(), piece.end());
        break;
      }
    }
  }
  return input;
}

}  // namespace

int main(int count, char** arguments) {
  ::alarm(kPatience);  // a hang is a failure
  std::vector<Bytes> inputs{Bytes{}};
  std::uint64_t mutations = 0;
  for (int i = 1; i < count; ++i) {
    constexpr std::string_view kMutations = "--mutations=";
    const std::string_view argument = arguments[i];
    if (argument.starts_with(kMutations)) {
      mutations = std::stoull(std::string(argument.substr(kMutations.size())));
      continue;
    }
    const auto more = read(fs::path(argument));
    if (more.empty()) {
      std::fprintf(stderr, "%s: no input there\n", arguments[i]);
      return 2;
    }
    inputs.insert(inputs.end(), more.begin(), more.end());
  }
  for (const Bytes& input : inputs) run(input);
  std::mt19937_64 random(1);
  for (std::uint64_t i = 0; i < mutations; ++i) run(mutated(inputs, random));
  std::printf("%zu inputs, %llu mutations\n", inputs.size(), static_cast<unsigned long long>(mutations));
  return 0;
}
