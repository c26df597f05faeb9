// The typed face of a box's scalars.

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/box_impl.h"

namespace gristmill {
void Box::refuse_lost() const {
  impl_->check_whole();
  throw std::logic_error("unreachable: the box is whole");
}

void Box::refuse_type(std::size_t scalar, ScalarType type) const {
  const ScalarSpec& spec = scalars().at(scalar);
  throw std::invalid_argument("box '" + name() + "': field '" + spec.name + "' is a " +
                              std::string(scalar_type_name(spec.type)) + ", not a " +
                              std::string(scalar_type_name(type)));
}

std::string Box::read_text(std::size_t scalar) const {
  const ScalarSpec& spec = scalars().at(scalar);
  if (!spec.sized()) refuse_type(scalar, ScalarType::kText);
  std::vector<std::uint64_t> words(spec.words());
  read_words(impl_->layout.scalar_words[scalar], words);
  const std::size_t length = std::min<std::size_t>(words[0], spec.capacity);
  return std::string(reinterpret_cast<const char*>(words.data() + 1), length);
}

Box::PublishResult Box::write_text(std::size_t scalar, std::string_view value, Deadline deadline) {
  const ScalarSpec& spec = scalars().at(scalar);
  if (!spec.sized()) refuse_type(scalar, ScalarType::kText);
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
