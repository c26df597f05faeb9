#include "rollout/elf_symbols.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

namespace gristmill {
namespace {

namespace fs = std::filesystem;

__attribute__((noinline)) int hidden_function(int x) { return x * 7 + ::getpid(); }

// Where the function lies in this program's file, relative to where that is loaded.
std::uint64_t address_of(int (*function)(int)) {
  Dl_info info{};
  EXPECT_NE(::dladdr(reinterpret_cast<void*>(function), &info), 0);
  return reinterpret_cast<std::uint64_t>(function) - reinterpret_cast<std::uint64_t>(info.dli_fbase);
}

TEST(ElfSymbolsTest, NamesAFunctionThatOtherFilesDoNotSee) {
  const std::uint64_t address = address_of(&hidden_function);
  EXPECT_NE(function_at("/proc/self/exe", address + 1).find("hidden_function"), std::string::npos);
  EXPECT_EQ(function_at("/proc/self/exe", address - (1 << 30)), "");
}

TEST(ElfSymbolsTest, WhatIsNoElfFileNamesNothing) {
  for (const char* path : {"/nowhere", "/", "/etc/hostname", "/dev/zero", "/dev/null"}) {
    EXPECT_EQ(function_at(path, 4096), "") << path;
  }
}

TEST(ElfSymbolsTest, ADamagedFileIsReadWithinItsBounds) {
  std::ifstream self("/proc/self/exe", std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(self), {}};
  const fs::path path = fs::temp_directory_path() / ("gristmill-elf-" + std::to_string(::getpid()));
  std::mt19937 random(1);
  // The headers, at both ends, are what everything else is found by.
  for (int i = 0; i < 300; ++i) {
    std::string damaged = whole;
    for (int change = 0; change < 3; ++change) {
      const std::size_t end = change == 0 ? 64 : damaged.size();
      const std::size_t begin =
          change == 0 ? 5 : damaged.size() - std::min<std::size_t>(4096, damaged.size());
      damaged[begin + random() % (end - begin)] = static_cast<char>(random());
    }
    if (i % 3 == 0) damaged.resize(random() % damaged.size());
    std::ofstream(path, std::ios::binary) << damaged;
    function_at(path.string(), address_of(&hidden_function));
    if (i == 20 && whole.size() > (8u << 20)) break;  // a large build's file: enough of it
  }
  fs::remove(path);
}

}  // namespace
}  // namespace gristmill
