#pragma once

// Files that are still there after a power cut. Any thread.

#include <cstddef>
#include <filesystem>
#include <span>
#include <vector>

namespace gristmill {

// All of these throw std::system_error with the path in what().

// Creates (exclusively) a file with these bytes, and returns once they are on the disk.
void write_file_durably(const std::filesystem::path& path, std::span<const std::byte> bytes);

// Makes entries created, renamed or removed in a directory last.
void sync_directory(const std::filesystem::path& directory);

// The bytes of a regular file.
std::vector<std::byte> read_file(const std::filesystem::path& path);

}  // namespace gristmill
