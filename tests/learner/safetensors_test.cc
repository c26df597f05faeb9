#include "learner/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include "learner/durable_file.h"

namespace gristmill {
namespace {

using ::testing::HasSubstr;

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// A file as anybody may write it: the header as given, then the data.
std::vector<std::byte> raw_file(std::string_view header, std::size_t data_size) {
  std::vector<std::byte> file(8);
  for (std::size_t i = 0; i < 8; ++i) file[i] = static_cast<std::byte>(header.size() >> (8 * i));
  const auto text = bytes_of(header);
  file.insert(file.end(), text.begin(), text.end());
  file.resize(file.size() + data_size, std::byte{1});
  return file;
}

// The message a damaged file is refused with. Fails when it is not refused.
std::string refusal(std::span<const std::byte> file, Checksum checksum = Checksum::kOptional) {
  try {
    parse_safetensors(file, "some.safetensors", checksum);
  } catch (const SafetensorsError& error) {
    EXPECT_THAT(error.what(), HasSubstr("some.safetensors"));
    return error.what();
  }
  ADD_FAILURE() << "the file was accepted";
  return "";
}
std::string refusal(std::string_view header, std::size_t data_size) {
  return refusal(raw_file(header, data_size));
}

FieldSpecs three_tensors() {
  return {{"weight", DType::kFloat32, {2, 3}}, {"count", DType::kInt64, {}}, {"mask", DType::kBool, {5}}};
}

std::vector<std::byte> some_file() {
  std::vector<std::byte> data(24 + 8 + 5);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 7);
  return to_safetensors(three_tensors(), data, {{"format", "pt"}});
}

TEST(Safetensors, gives_back_names_shapes_dtypes_data_and_metadata) {
  const Safetensors read = parse_safetensors(some_file(), "x");
  EXPECT_EQ(read.tensors, three_tensors());
  EXPECT_EQ(read.metadata, (std::map<std::string, std::string>{{"format", "pt"}}));
  ASSERT_EQ(read.data.size(), 37u);
  EXPECT_EQ(read.data[36], static_cast<std::byte>(36 * 7));
  EXPECT_EQ(read.bytes(1).size(), 8u);
  EXPECT_EQ(read.bytes(1)[0], static_cast<std::byte>(24 * 7));
}

TEST(Safetensors, lays_the_data_out_aligned_for_mapping) {
  const auto file = some_file();
  std::uint64_t header = 0;
  std::memcpy(&header, file.data(), 8);
  EXPECT_EQ(header % 8, 0u);
}

TEST(Safetensors, keeps_every_dtype_and_empty_tensors) {
  FieldSpecs specs;
  for (int dtype = 0; dtype <= static_cast<int>(DType::kFloat64); ++dtype) {
    specs.push_back({"t" + std::to_string(dtype), static_cast<DType>(dtype), {3}});
    specs.push_back({"empty" + std::to_string(dtype), static_cast<DType>(dtype), {0, 4}});
  }
  std::size_t size = 0;
  for (const FieldSpec& spec : specs) size += spec.bytes();
  EXPECT_EQ(parse_safetensors(to_safetensors(specs, std::vector<std::byte>(size)), "x").tensors, specs);
}

TEST(Safetensors, refuses_a_file_with_any_bit_of_any_byte_flipped) {
  const auto file = some_file();
  for (std::size_t i = 0; i < file.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      auto damaged = file;
      damaged[i] ^= static_cast<std::byte>(1 << bit);
      EXPECT_THROW(parse_safetensors(damaged, "x"), SafetensorsError) << "byte " << i << " bit " << bit;
    }
  }
}

TEST(Safetensors, refuses_a_file_cut_short_anywhere_or_with_bytes_added) {
  const auto file = some_file();
  for (std::size_t size = 0; size < file.size(); ++size) {
    EXPECT_THROW(parse_safetensors(std::span(file).first(size), "x"), SafetensorsError) << size;
  }
  auto longer = file;
  longer.push_back(std::byte{0});
  EXPECT_THAT(refusal(longer), HasSubstr("1 bytes follow the last tensor"));
}

TEST(Safetensors, reads_a_file_of_others_without_a_checksum_only_where_allowed) {
  const auto file = raw_file(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4);
  EXPECT_EQ(parse_safetensors(file, "x", Checksum::kOptional).tensors.size(), 1u);
  EXPECT_THAT(refusal(file, Checksum::kRequired), HasSubstr("no checksum"));
}

TEST(Safetensors, sorts_tensors_by_where_their_data_is) {
  const auto file = raw_file(R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]},)"
                             R"("a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})",
                             5);
  const Safetensors read = parse_safetensors(file, "x", Checksum::kOptional);
  EXPECT_EQ(read.tensors[0].name, "a");
  EXPECT_EQ(read.tensors[1].name, "b");
}

TEST(Safetensors, names_what_is_wrong_with_a_header) {
  EXPECT_THAT(refusal(bytes_of("abc")), HasSubstr("3 bytes"));
  EXPECT_THAT(refusal(raw_file("", 0)), HasSubstr("does not begin with {"));
  EXPECT_THAT(refusal("[1]", 0), HasSubstr("does not begin with {"));
  EXPECT_THAT(refusal("{\"a\":", 0), HasSubstr("not JSON"));
  EXPECT_THAT(refusal("{\"\xff\":1}", 0), HasSubstr("not JSON"));
  std::vector<std::byte> endless(16, std::byte{0xff});
  EXPECT_THAT(refusal(endless), HasSubstr("more than the format's limit"));
  std::vector<std::byte> beyond(16, std::byte{0});
  beyond[0] = std::byte{100};
  EXPECT_THAT(refusal(beyond), HasSubstr("100 bytes, and 8 are left"));
}

TEST(Safetensors, refuses_repeated_keys_at_any_level) {
  const std::string tensor = R"({"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  EXPECT_THAT(refusal("{\"a\":" + tensor + ",\"a\":" + tensor + "}", 1), HasSubstr("\"a\" twice"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1),
              HasSubstr("\"dtype\" twice"));
  EXPECT_THAT(refusal(R"({"__metadata__":{"k":"1","k":"2"}})", 0), HasSubstr("\"k\" twice"));
}

TEST(Safetensors, refuses_a_header_nested_without_end) {
  // Nesting that a recursive reader would run out of stack over.
  EXPECT_THAT(refusal("{\"a\":" + std::string(1'000'000, '['), 0), HasSubstr("nested deeper"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":[[[[[[1]]]]]],"shape":[1],"data_offsets":[0,1]}})", 1),
              HasSubstr("nested deeper"));
}

TEST(Safetensors, refuses_metadata_that_is_not_text) {
  EXPECT_THAT(refusal(R"({"__metadata__":{"k":1}})", 0), HasSubstr("\"k\" is not a string"));
  EXPECT_THAT(refusal(R"({"__metadata__":3})", 0), HasSubstr("not an object"));
}

TEST(Safetensors, refuses_tensors_that_are_not_what_they_say) {
  const auto tensor = [](const std::string& body, std::size_t size) {
    return refusal("{\"a\":{" + body + "}}", size);
  };
  EXPECT_THAT(tensor(R"("dtype":"F32","shape":[1])", 4), HasSubstr("dtype, shape and data_offsets"));
  EXPECT_THAT(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1)", 4),
              HasSubstr("is not an object of"));
  EXPECT_THAT(tensor(R"("dtype":"F31","shape":[1],"data_offsets":[0,4])", 4), HasSubstr("\"F31\""));
  EXPECT_THAT(tensor(R"("dtype":7,"shape":[1],"data_offsets":[0,4])", 4), HasSubstr("dtype 7"));
  EXPECT_THAT(tensor(R"("dtype":"F32","shape":1,"data_offsets":[0,4])", 4), HasSubstr("shape is not a list"));
  EXPECT_THAT(tensor(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])", 4),
              HasSubstr("-1, expected a whole"));
  EXPECT_THAT(tensor(R"("dtype":"F32","shape":[1.5],"data_offsets":[0,4])", 4),
              HasSubstr("1.5, expected a whole"));
  EXPECT_THAT(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0])", 4), HasSubstr("not two numbers"));
  EXPECT_THAT(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,"4"])", 4),
              HasSubstr("expected a whole"));
  EXPECT_THAT(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])", 4), HasSubstr("lies at [4,0]"));
  EXPECT_THAT(tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])", 4),
              HasSubstr("the data has 4 bytes"));
  EXPECT_THAT(tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])", 4), HasSubstr("needs 8"));
  EXPECT_THAT(tensor(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])", 0),
              HasSubstr("overflows"));
  EXPECT_THAT(tensor(R"("dtype":"F32","shape":[0,18446744073709551615],"data_offsets":[0,0])", 0),
              HasSubstr("overflows"));
}

TEST(Safetensors, refuses_tensors_that_overlap_or_leave_a_gap) {
  const auto two = [](const std::string& first, const std::string& second) {
    return refusal(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":)" + first +
                       R"(},"b":{"dtype":"U8","shape":[2],"data_offsets":)" + second + "}}",
                   4);
  };
  EXPECT_THAT(two("[0,2]", "[1,3]"), HasSubstr("within the one before"));
  EXPECT_THAT(two("[0,2]", "[0,2]"), HasSubstr("within the one before"));
  EXPECT_THAT(two("[1,3]", "[2,4]"), HasSubstr("gap"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 4),
              HasSubstr("2 bytes follow"));
}

TEST(Safetensors, refuses_to_write_what_no_reader_would_take) {
  const std::vector<std::byte> four(4);
  const auto write = [&](const FieldSpecs& specs) { to_safetensors(specs, four); };
  EXPECT_THROW(write({{"a", DType::kFloat32, {2}}}), std::invalid_argument);
  EXPECT_THROW(write({{"", DType::kFloat32, {1}}}), std::invalid_argument);
  EXPECT_THROW(write({{"__metadata__", DType::kFloat32, {1}}}), std::invalid_argument);
  EXPECT_THROW(write({{"a", DType::kInt16, {1}}, {"a", DType::kInt16, {1}}}), std::invalid_argument);
  EXPECT_THROW(write({{"\xff", DType::kFloat32, {1}}}), std::invalid_argument);
  EXPECT_THROW(to_safetensors({}, {}, {{"checksum", "mine"}}), std::invalid_argument);
}

TEST(Safetensors, names_a_file_that_cannot_be_read) {
  for (const std::string path : {"/does/not/exist.safetensors", "/tmp"}) {
    try {
      read_safetensors(path);
      FAIL() << path << " was read";
    } catch (const SafetensorsError& error) {
      EXPECT_THAT(error.what(), HasSubstr(path));
    }
  }
}

}  // namespace
}  // namespace gristmill
