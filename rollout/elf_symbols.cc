#include "rollout/elf_symbols.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

namespace gristmill {

namespace {

// A file in memory, from which nothing is read beyond its end.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat status {};
    if (fd >= 0 && ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0) {
      size_ = static_cast<std::uint64_t>(status.st_size);
      void* const mapped = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
      if (mapped == MAP_FAILED) size_ = 0;
      data_ = static_cast<const char*>(mapped);
    }
    if (fd >= 0) ::close(fd);
  }
  ~MappedFile() {
    if (size_ != 0) ::munmap(const_cast<char*>(data_), size_);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  bool has(std::uint64_t offset, std::uint64_t bytes) const {
    return offset <= size_ && bytes <= size_ - offset;
  }
  template <class T>
  bool read(std::uint64_t offset, T& value) const {
    if (!has(offset, sizeof value)) return false;
    std::memcpy(&value, data_ + offset, sizeof value);
    return true;
  }
  std::string text(std::uint64_t offset) const {
    if (offset >= size_) return {};
    return std::string(data_ + offset, ::strnlen(data_ + offset, size_ - offset));
  }

 private:
  const char* data_ = nullptr;
  std::uint64_t size_ = 0;
};

bool section(const MappedFile& file, const Elf64_Ehdr& header, std::uint64_t index, Elf64_Shdr& found) {
  return index < header.e_shnum && file.has(header.e_shoff, index * sizeof found) &&
         file.read(header.e_shoff + index * sizeof found, found);
}

}  // namespace

std::string function_at(const std::string& path, std::uint64_t address) {
  const MappedFile file(path);
  Elf64_Ehdr header{};
  if (!file.read(0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_shentsize != sizeof(Elf64_Shdr)) {
    return {};
  }
  for (std::uint64_t i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr symbols{}, names{};
    if (!section(file, header, i, symbols)) return {};
    if (symbols.sh_type != SHT_SYMTAB || !section(file, header, symbols.sh_link, names)) continue;
    if (!file.has(symbols.sh_offset, symbols.sh_size)) return {};
    for (std::uint64_t at = 0; at + sizeof(Elf64_Sym) <= symbols.sh_size; at += sizeof(Elf64_Sym)) {
      Elf64_Sym symbol{};
      if (!file.read(symbols.sh_offset + at, symbol)) return {};
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || address < symbol.st_value ||
          address - symbol.st_value >= symbol.st_size || symbol.st_name >= names.sh_size) {
        continue;
      }
      return file.text(names.sh_offset + symbol.st_name);
    }
  }
  return {};
}

}  // namespace gristmill
