#pragma once

// Makes the seals of damaged checkpoint files fit again: otherwise nothing behind them is ever reached.

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "learner/content_hash.h"

namespace gristmill::fuzz {

// The first seal in `text`; a text without one stays as it is.
inline void reseal(std::string& text, std::span<const std::byte> rest = {}) {
  constexpr std::string_view kStart = kUnsealed.substr(0, kUnsealed.find(':') + 1);
  const std::size_t at = text.find(kStart);
  if (at == std::string::npos || text.size() - at < kUnsealed.size()) return;
  const std::string before = text;
  text.replace(at, kUnsealed.size(), kUnsealed);
  try {
    seal(text, rest);
  } catch (const std::logic_error&) {
    text = before;
  }
}

// A safetensors file whose header length is believed.
inline void reseal_safetensors(std::vector<std::byte>& file) {
  std::uint64_t length = 0;
  if (file.size() < 8) return;
  for (std::size_t i = 0; i < 8; ++i) length |= std::to_integer<std::uint64_t>(file[i]) << (8 * i);
  if (length > file.size() - 8) return;
  std::string header(reinterpret_cast<const char*>(file.data()) + 8, length);
  reseal(header, std::span(file).subspan(8 + length));
  for (std::size_t i = 0; i < length; ++i) file[8 + i] = static_cast<std::byte>(header[i]);
}

}  // namespace gristmill::fuzz
