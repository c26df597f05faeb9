#include "core/field_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

namespace gristmill {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

// A scalar.
FieldSpec scalar(std::string name) { return {std::move(name), DType::kFloat32, {}}; }

TEST(FieldSpec, EveryDTypeIsFoundByItsName) {
  for (int i = 0; i <= static_cast<int>(DType::kFloat64); ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(dtype_from_name(dtype_name(dtype)), dtype);
    EXPECT_GE(dtype_size(dtype), 1u);
  }
  EXPECT_EQ(dtype_size(DType::kBFloat16), 2u);
  EXPECT_EQ(dtype_size(DType::kFloat64), 8u);
  EXPECT_EQ(dtype_name(DType::kUInt8), "uint8");
}

TEST(FieldSpec, AnUnknownDTypeNameIsRefusedWithTheKnownOnes) {
  EXPECT_THAT([] { dtype_from_name("float31"); },
              ThrowsMessage<std::invalid_argument>(
                  testing::AllOf(HasSubstr("'float31'"), HasSubstr("float32"), HasSubstr("bfloat16"))));
}

TEST(FieldSpec, BytesAreElementsTimesSizeAndAScalarHasOneElement) {
  EXPECT_EQ((FieldSpec{"a", DType::kFloat32, {3, 5}}.bytes()), 60u);
  EXPECT_EQ((FieldSpec{"a", DType::kInt16, {}}.bytes()), 2u);
  EXPECT_EQ((FieldSpec{"a", DType::kInt16, {4, 0}}.bytes()), 0u);
}

TEST(FieldSpec, AMissingFieldIsRefusedWithTheNearestNames) {
  const FieldSpecs specs{scalar("observation"), scalar("reward"), scalar("action"),
                         scalar("log_probability")};
  EXPECT_EQ(field_index(specs, "action"), 2u);
  EXPECT_THAT([&] { field_index(specs, "rewards"); },
              ThrowsMessage<std::out_of_range>(HasSubstr("'rewards': the nearest are 'reward'")));
}

TEST(FieldSpec, ValidateNamesTheFieldAndWhatIsWrongWithIt) {
  const auto refused = [](FieldSpecs specs, const std::string& part) {
    EXPECT_THAT([&] { validate(specs); }, ThrowsMessage<std::invalid_argument>(HasSubstr(part)));
  };
  refused({}, "no fields");
  refused({scalar("")}, "number 0) has no name");
  refused({scalar("a"), scalar("b"), scalar("a")}, "'a' (number 2) repeats the name of field number 0");
  refused({scalar(std::string(112, 'x'))}, "name of 112 bytes");
  refused({scalar(std::string("a\0b", 3))}, "zero byte");
  refused({{"a", DType::kFloat32, std::vector<std::int64_t>(9, 1)}}, "9 dimensions");
  refused({{"a", DType::kFloat32, {2, -3}}}, "extent -3");
  refused({{"a", DType::kFloat32, {std::int64_t{1} << 32, std::int64_t{1} << 31}}}, "too large");
  const std::int64_t half = std::numeric_limits<std::int64_t>::max() / 2 + 1;
  refused({{"a", DType::kUInt8, {half}}, {"b", DType::kUInt8, {half}}}, "'b' (number 1) is too large");
  refused(FieldSpecs(kMaxFields + 1), "513 fields");
}

TEST(FieldSpec, ValidateAcceptsWhatIsAtTheLimits) {
  FieldSpecs specs;
  for (std::size_t i = 0; i < kMaxFields; ++i) specs.push_back(scalar("field" + std::to_string(i)));
  specs[0] = {std::string(kMaxFieldName, 'x'), DType::kFloat64, std::vector<std::int64_t>(kMaxFieldDims, 2)};
  specs[1] = {"empty", DType::kFloat64, {0, std::int64_t{1} << 40}};
  EXPECT_NO_THROW(validate(specs));
}

}  // namespace
}  // namespace gristmill
