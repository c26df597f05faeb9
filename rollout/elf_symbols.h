#pragma once

#include <cstdint>
#include <string>

namespace gristmill {

// The function in the ELF file `path` (64 bit, this machine's byte order) that holds `address`, relative to
// where the file is loaded: its name as the linker has it. From the full symbol table, which also names what
// is hidden from other files; empty when the file has none (stripped), is no such file, or is damaged.
std::string function_at(const std::string& path, std::uint64_t address);

}  // namespace gristmill
