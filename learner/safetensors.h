#pragma once

// Files in the safetensors format: 8 bytes of header length (little-endian), a JSON header, the data.
// Any safetensors library reads what is written here. No torch. Any thread.

#include <cstddef>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/field_spec.h"

namespace gristmill {

// what(): the file, what is wrong with it and where.
class SafetensorsError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Safetensors {
  FieldSpecs tensors;                           // in the order of their data
  std::vector<std::byte> data;                  // back to back
  std::map<std::string, std::string> metadata;  // without the checksum

  // Bytes of tensors[index].
  std::span<const std::byte> bytes(std::size_t index) const;
};

// The file's bytes. `tensors` name pieces of `data`, back to back and in order; names are unique and
// not "__metadata__". A "checksum" over the whole file is added to the metadata.
// Throws std::invalid_argument when sizes differ or a name is refused.
std::vector<std::byte> to_safetensors(const FieldSpecs& tensors, std::span<const std::byte> data,
                                      const std::map<std::string, std::string>& metadata = {});

enum class Checksum { kRequired, kOptional };  // kOptional: verified where there is one (files of others)

// `origin` stands for the file in messages. Every length, offset, shape and dtype is checked before
// use: a header that is too long, cut short, not JSON or with repeated keys; offsets that overlap,
// leave a gap, do not match the shape or leave bytes over; a checksum that is missing or differs.
// Throws SafetensorsError.
Safetensors parse_safetensors(std::span<const std::byte> file, const std::string& origin,
                              Checksum checksum = Checksum::kRequired);
// The same from a file. Throws SafetensorsError for one that cannot be read as well.
Safetensors read_safetensors(const std::string& path, Checksum checksum = Checksum::kRequired);

}  // namespace gristmill
