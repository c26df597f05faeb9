#pragma once

// A segment that a target damages, input after input: its file as it was made, to go back to.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "core/process_identity.h"
#include "core/segment.h"
#include "tests/fuzz/fuzz_input.h"

namespace gristmill::fuzz {

class SegmentFile {
 public:
  // Opens the segment `name`, which must live as long, and remembers what is in it.
  explicit SegmentFile(std::string name)
      : name_(std::move(name)), fd_(::open(("/dev/shm" + name_).c_str(), O_RDWR | O_CLOEXEC)) {
    require(fd_ >= 0, "the segment can be opened");
    const off_t size = ::lseek(fd_, 0, SEEK_END);
    require(size > 0, "the segment has a size");
    made_.resize(static_cast<std::size_t>(size));
    require(::pread(fd_, made_.data(), made_.size(), 0) == size, "the segment can be read");
  }
  SegmentFile(const SegmentFile&) = delete;
  SegmentFile& operator=(const SegmentFile&) = delete;

  const std::string& name() const { return name_; }
  std::size_t size() const { return made_.size(); }

  void restore() const { write(made_); }
  // The file becomes `content`, of any length.
  void write(const std::vector<std::byte>& content) const {
    require(::ftruncate(fd_, static_cast<off_t>(content.size())) == 0, "the segment can be resized");
    require(::pwrite(fd_, content.data(), content.size(), 0) == static_cast<ssize_t>(content.size()),
            "the segment can be written");
  }
  const std::vector<std::byte>& made() const { return made_; }

  // The payload, mapped once. REQUIRES: the file keeps its size.
  std::span<std::uint64_t> payload_words() {
    if (mapped_ == nullptr) {
      void* const at = ::mmap(nullptr, made_.size(), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
      require(at != MAP_FAILED, "the segment can be mapped");
      mapped_ = static_cast<std::byte*>(at);
    }
    return {reinterpret_cast<std::uint64_t*>(mapped_ + Segment::kHeaderBytes),
            (made_.size() - Segment::kHeaderBytes) / 8};
  }
  void restore_payload() {
    const auto words = payload_words();
    std::memcpy(words.data(), made_.data() + Segment::kHeaderBytes, words.size() * 8);
  }

 private:
  std::string name_;
  int fd_;
  std::vector<std::byte> made_;
  std::byte* mapped_ = nullptr;
};

// A lock whose word names this process is held by the living, and waited for: not what is looked for here.
inline void free_lock_of_the_living(std::uint64_t& owner) {
  const ProcessIdentity holder = ProcessIdentity::unpack(owner);
  if (owner != 0 && holder.pid != 0 && !holder.proved_dead()) owner = 0;
}

}  // namespace gristmill::fuzz
