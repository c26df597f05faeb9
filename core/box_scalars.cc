// The typed face of a box's scalars.

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "core/box_impl.h"

namespace gristmill {
namespace {

void require(const Box& box, std::size_t scalar, ScalarType type) {
  const ScalarSpec& spec = box.scalars().at(scalar);
  if (spec.type == type) [[likely]]
    return;
  throw std::invalid_argument("box '" + box.name() + "': field '" + spec.name + "' is a " +
                              std::string(scalar_type_name(spec.type)) + ", not a " +
                              std::string(scalar_type_name(type)));
}

void require_sized(const Box& box, std::size_t scalar) {
  if (!box.scalars().at(scalar).sized()) require(box, scalar, ScalarType::kText);
}

}  // namespace

bool Box::read_bool(std::size_t scalar) const {
  require(*this, scalar, ScalarType::kBool);
  return read_word(first_word(scalar)) != 0;
}

std::int64_t Box::read_int(std::size_t scalar) const {
  require(*this, scalar, ScalarType::kInt64);
  return std::bit_cast<std::int64_t>(read_word(first_word(scalar)));
}

double Box::read_float(std::size_t scalar) const {
  require(*this, scalar, ScalarType::kFloat64);
  return std::bit_cast<double>(read_word(first_word(scalar)));
}

std::string Box::read_text(std::size_t scalar) const {
  require_sized(*this, scalar);
  const ScalarSpec& spec = scalars()[scalar];
  std::vector<std::uint64_t> words(spec.words());
  read_words(impl_->layout.scalar_words[scalar], words);
  const std::size_t length = std::min<std::size_t>(words[0], spec.capacity);
  return std::string(reinterpret_cast<const char*>(words.data() + 1), length);
}

Box::PublishResult Box::write_bool(std::size_t scalar, bool value, Deadline deadline) {
  require(*this, scalar, ScalarType::kBool);
  const std::uint64_t word = value ? 1 : 0;
  const Words words{impl_->layout.scalar_words[scalar], {&word, 1}};
  return update({&words, 1}, {}, deadline);
}

Box::PublishResult Box::write_int(std::size_t scalar, std::int64_t value, Deadline deadline) {
  require(*this, scalar, ScalarType::kInt64);
  const auto word = std::bit_cast<std::uint64_t>(value);
  const Words words{impl_->layout.scalar_words[scalar], {&word, 1}};
  return update({&words, 1}, {}, deadline);
}

Box::PublishResult Box::write_float(std::size_t scalar, double value, Deadline deadline) {
  require(*this, scalar, ScalarType::kFloat64);
  const auto word = std::bit_cast<std::uint64_t>(value);
  const Words words{impl_->layout.scalar_words[scalar], {&word, 1}};
  return update({&words, 1}, {}, deadline);
}

Box::PublishResult Box::write_text(std::size_t scalar, std::string_view value, Deadline deadline) {
  require_sized(*this, scalar);
  const ScalarSpec& spec = scalars()[scalar];
  if (value.size() > spec.capacity) {
    throw std::length_error("box '" + name() + "': field '" + spec.name + "' holds " +
                            std::to_string(spec.capacity) + " bytes, but the value has " +
                            std::to_string(value.size()));
  }
  std::vector<std::uint64_t> content(1 + (value.size() + 7) / 8);
  content[0] = value.size();
  std::memcpy(content.data() + 1, value.data(), value.size());
  const Words words{impl_->layout.scalar_words[scalar], content};
  return update({&words, 1}, {}, deadline);
}

}  // namespace gristmill
