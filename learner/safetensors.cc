#include "learner/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "learner/content_hash.h"
#include "learner/durable_file.h"

namespace gristmill {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kMaxHeader = 100'000'000;  // the format's own limit
constexpr std::string_view kMetadata = "__metadata__";
constexpr std::string_view kChecksum = "checksum";

constexpr std::array<std::pair<DType, std::string_view>, 10> kDTypeNames = {{{DType::kBool, "BOOL"},
                                                                             {DType::kUInt8, "U8"},
                                                                             {DType::kInt8, "I8"},
                                                                             {DType::kInt16, "I16"},
                                                                             {DType::kInt32, "I32"},
                                                                             {DType::kInt64, "I64"},
                                                                             {DType::kFloat16, "F16"},
                                                                             {DType::kBFloat16, "BF16"},
                                                                             {DType::kFloat32, "F32"},
                                                                             {DType::kFloat64, "F64"}}};

// One file under examination; fail() knows its name.
class Parser {
 public:
  Parser(std::span<const std::byte> file, const std::string& origin) : file_(file), origin_(origin) {}

  Safetensors parse(Checksum checksum) {
    const std::string_view header = find_header();
    const std::span<const std::byte> data = file_.subspan(kLengthBytes + header.size());
    const Json json = parse_header(header);

    Safetensors result;
    std::optional<std::string> sealed;
    std::vector<Piece> pieces;
    for (const auto& [name, value] : json.items()) {
      if (name == kMetadata) {
        result.metadata = metadata(value);
      } else {
        pieces.push_back(piece(name, value, data.size()));
      }
    }
    const auto found = result.metadata.find(std::string(kChecksum));
    // Files of others may have a "checksum" of another kind.
    if (found != result.metadata.end() && (checksum == Checksum::kRequired || is_seal(found->second))) {
      sealed = found->second;
      result.metadata.erase(found);
    }
    require_contiguous(pieces, data.size());
    check(header, data, sealed, checksum);
    for (Piece& piece : pieces) result.tensors.push_back(std::move(piece.spec));
    result.data.assign(data.begin(), data.end());
    return result;
  }

 private:
  struct Piece {
    FieldSpec spec;
    std::size_t begin, end;
  };

  [[noreturn]] void fail(const std::string& reason) const {
    throw SafetensorsError(origin_ + " is not a whole safetensors file: " + reason);
  }

  std::string_view find_header() const {
    if (file_.size() < kLengthBytes) {
      fail("it has " + std::to_string(file_.size()) + " bytes, expected 8 of header length at least");
    }
    std::uint64_t length = 0;
    for (std::size_t i = 0; i < kLengthBytes; ++i) {
      length |= std::to_integer<std::uint64_t>(file_[i]) << (8 * i);
    }
    if (length > kMaxHeader) {
      fail("its header would be " + std::to_string(length) + " bytes, more than the format's limit of " +
           std::to_string(kMaxHeader));
    }
    if (length > file_.size() - kLengthBytes) {
      fail("its header would be " + std::to_string(length) + " bytes, and " +
           std::to_string(file_.size() - kLengthBytes) + " are left in the file (cut short?)");
    }
    const auto* text = reinterpret_cast<const char*>(file_.data()) + kLengthBytes;
    return {text, static_cast<std::size_t>(length)};
  }

  // A JSON object without repeated keys at any level.
  Json parse_header(std::string_view header) const {
    if (header.empty() || header.front() != '{') fail("its header does not begin with {");
    std::vector<std::set<std::string>> keys;
    const Json::parser_callback_t watch = [&](int depth, Json::parse_event_t event, Json& value) {
      if (depth > 4) fail("its header is nested deeper than the format has it");
      if (event == Json::parse_event_t::object_start) keys.emplace_back();
      if (event == Json::parse_event_t::object_end) keys.pop_back();
      if (event == Json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second) {
        fail("its header has the key " + value.dump() + " twice");
      }
      return true;
    };
    Json json;
    try {
      json = Json::parse(header, watch);
    } catch (const Json::exception& error) {
      fail(std::string("its header is not JSON: ") + error.what());
    }
    return json;
  }

  std::map<std::string, std::string> metadata(const Json& value) const {
    if (!value.is_object()) fail("__metadata__ is not an object");
    std::map<std::string, std::string> result;
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) fail("__metadata__'s \"" + key + "\" is not a string");
      result[key] = text.get<std::string>();
    }
    return result;
  }

  std::size_t whole_number(const Json& value, const std::string& what) const {
    if (!value.is_number_unsigned()) fail(what + " is " + value.dump() + ", expected a whole number >= 0");
    return value.get<std::uint64_t>();
  }

  Piece piece(const std::string& name, const Json& value, std::size_t data_size) const {
    const std::string label = "tensor \"" + name + "\"";
    if (!value.is_object() || value.size() != 3 || !value.contains("dtype") || !value.contains("shape") ||
        !value.contains("data_offsets")) {
      fail(label + " is not an object of dtype, shape and data_offsets");
    }
    Piece result;
    result.spec.name = name;
    const Json& dtype = value["dtype"];
    const auto* known = std::find_if(kDTypeNames.begin(), kDTypeNames.end(), [&](const auto& entry) {
      return dtype.is_string() && dtype.get_ref<const std::string&>() == entry.second;
    });
    if (known == kDTypeNames.end()) fail(label + " has dtype " + dtype.dump() + ", which is not supported");
    result.spec.dtype = known->first;

    const Json& shape = value["shape"];
    if (!shape.is_array()) fail(label + "'s shape is not a list");
    std::size_t bytes = dtype_size(result.spec.dtype);
    for (const Json& extent : shape) {
      const std::size_t count = whole_number(extent, label + "'s extent");
      if (count != 0 && bytes > std::numeric_limits<std::int64_t>::max() / count) {
        fail(label + "'s shape " + shape.dump() + " overflows");
      }
      bytes *= count;
      if (count > static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max())) {
        fail(label + "'s shape " + shape.dump() + " overflows");
      }
      result.spec.shape.push_back(static_cast<std::int64_t>(count));
    }

    const Json& offsets = value["data_offsets"];
    if (!offsets.is_array() || offsets.size() != 2) fail(label + "'s data_offsets are not two numbers");
    result.begin = whole_number(offsets[0], label + "'s begin");
    result.end = whole_number(offsets[1], label + "'s end");
    if (result.begin > result.end || result.end > data_size) {
      fail(label + " lies at " + offsets.dump() + ", and the data has " + std::to_string(data_size) +
           " bytes (cut short?)");
    }
    if (result.end - result.begin != bytes) {
      fail(label + " has " + std::to_string(result.end - result.begin) + " bytes, and its shape " +
           shape.dump() + " needs " + std::to_string(bytes));
    }
    return result;
  }

  // The pieces in order of their offsets, each beginning where the one before ended.
  void require_contiguous(std::vector<Piece>& pieces, std::size_t data_size) const {
    std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    std::size_t expected = 0;
    for (const Piece& piece : pieces) {
      if (piece.begin != expected) {
        fail("tensor \"" + piece.spec.name + "\" begins at " + std::to_string(piece.begin) + ", " +
             (piece.begin < expected ? "within the one before, which ends at " : "after a gap from ") +
             std::to_string(expected));
      }
      expected = piece.end;
    }
    if (expected != data_size) {
      fail(std::to_string(data_size - expected) + " bytes follow the last tensor");
    }
  }

  void check(std::string_view header, std::span<const std::byte> data,
             const std::optional<std::string>& sealed, Checksum checksum) const {
    if (!sealed) {
      if (checksum == Checksum::kRequired) fail("it has no checksum in its metadata");
      return;
    }
    if (!seal_holds(header, *sealed, data)) {
      fail("its checksum is " + *sealed + ", and its content is another: it was changed or damaged");
    }
  }

  std::span<const std::byte> file_;
  const std::string& origin_;
};

}  // namespace

std::span<const std::byte> Safetensors::bytes(std::size_t index) const {
  std::size_t begin = 0;
  for (std::size_t i = 0; i < index; ++i) begin += tensors[i].bytes();
  return std::span(data).subspan(begin, tensors[index].bytes());
}

std::vector<std::byte> to_safetensors(const FieldSpecs& tensors, std::span<const std::byte> data,
                                      const std::map<std::string, std::string>& metadata) {
  Json json = Json::object();
  json[kMetadata] = Json::object();
  json[kMetadata][kChecksum] = kUnsealed;
  for (const auto& [key, value] : metadata) {
    if (key == kChecksum || value.find(kUnsealed) != std::string::npos) {
      throw std::invalid_argument("metadata \"" + key + "\" stands where the checksum of a file does");
    }
    json[kMetadata][key] = value;
  }
  std::size_t begin = 0;
  for (const FieldSpec& spec : tensors) {
    if (spec.name.empty() || json.contains(spec.name)) {
      throw std::invalid_argument(
          "a tensor of a safetensors file is called \"" + spec.name +
          "\", expected a name that is not empty, not __metadata__, and not repeated");
    }
    const auto* dtype = std::find_if(kDTypeNames.begin(), kDTypeNames.end(),
                                     [&](const auto& entry) { return entry.first == spec.dtype; });
    const std::size_t end = begin + spec.bytes();
    json[spec.name] = {{"dtype", dtype->second}, {"shape", spec.shape}, {"data_offsets", {begin, end}}};
    begin = end;
  }
  if (begin != data.size()) {
    throw std::invalid_argument("the tensors have " + std::to_string(begin) + " bytes, and the data " +
                                std::to_string(data.size()));
  }
  std::string header;
  try {
    header = json.dump();
  } catch (const Json::exception& error) {
    throw std::invalid_argument(std::string("a name or metadata of a safetensors file is not UTF-8: ") +
                                error.what());
  }
  // Spaces up to a multiple of 8, so that the data is aligned where the file is mapped.
  header.resize((header.size() + 7) / 8 * 8, ' ');
  seal(header, data);

  std::vector<std::byte> file(kLengthBytes + header.size() + data.size());
  for (std::size_t i = 0; i < kLengthBytes; ++i) file[i] = static_cast<std::byte>(header.size() >> (8 * i));
  std::memcpy(file.data() + kLengthBytes, header.data(), header.size());
  std::copy(data.begin(), data.end(),
            file.begin() + static_cast<std::ptrdiff_t>(kLengthBytes + header.size()));
  return file;
}

Safetensors parse_safetensors(std::span<const std::byte> file, const std::string& origin, Checksum checksum) {
  return Parser(file, origin).parse(checksum);
}

Safetensors read_safetensors(const std::string& path, Checksum checksum) {
  std::vector<std::byte> file;
  try {
    file = read_file(path);
  } catch (const std::system_error& error) {
    throw SafetensorsError(error.what());
  }
  return parse_safetensors(file, path, checksum);
}

}  // namespace gristmill
