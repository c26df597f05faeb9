#include "learner/content_hash.h"

#include <gtest/gtest.h>

#include <vector>

namespace gristmill {
namespace {

using namespace std::string_view_literals;

TEST(ContentHash, gives_the_published_values_of_xxh64) {
  EXPECT_EQ(hash_text(content_hash(""sv)), "ef46db3751d8e999");
  EXPECT_EQ(hash_text(content_hash("a"sv)), "d24ec4f1a98c6e5b");
  EXPECT_EQ(hash_text(content_hash("abc"sv)), "44bc2cf5ad770999");
  // 39 bytes: a block of 32, a word of 4, single bytes.
  EXPECT_EQ(hash_text(content_hash("Nobody inspects the spammish repetition"sv)), "fbcea83c8a378bf1");
}

TEST(ContentHash, of_floats_is_that_of_their_bytes) {
  const std::vector<float> values = {1.5f, -2.25f, 0.0f};
  EXPECT_EQ(content_hash(std::span<const float>(values)), content_hash(std::as_bytes(std::span(values))));
  EXPECT_NE(content_hash(std::span<const float>(values)), content_hash(std::span<const float>(values), 1));
}

TEST(Seal, holds_for_what_was_sealed_and_breaks_with_any_byte_changed) {
  std::string text = "{\"checksum\": \"" + std::string(kUnsealed) + "\", \"x\": 1}";
  std::vector<std::byte> rest(70, std::byte{5});
  seal(text, rest);
  const std::string value = text.substr(14, kUnsealed.size());
  EXPECT_TRUE(is_seal(value));
  EXPECT_NE(value, kUnsealed);
  EXPECT_TRUE(seal_holds(text, value, rest));
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string damaged = text;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x20);
    EXPECT_FALSE(seal_holds(damaged, damaged.substr(14, kUnsealed.size()), rest)) << i;
  }
  for (std::size_t i = 0; i < rest.size(); ++i) {
    std::vector<std::byte> damaged = rest;
    damaged[i] ^= std::byte{1};
    EXPECT_FALSE(seal_holds(text, value, damaged)) << i;
  }
}

TEST(Seal, refuses_a_text_without_one_place_for_it) {
  std::string none = "{}", two = std::string(kUnsealed) + std::string(kUnsealed);
  EXPECT_THROW(seal(none), std::logic_error);
  EXPECT_THROW(seal(two), std::logic_error);
}

}  // namespace
}  // namespace gristmill
