#pragma once

// Where get_many copies messages: the caller's memory, grown when needed and given back when it is
// much more than needed. One thread at a time.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace gristmill {

class MessageBuffer {
 public:
  // One message: data()[offset, offset + length). offset is a multiple of 16, and of 64 for a
  // message of 1 KiB and more.
  struct Record {
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
  };
  // Memory up to here is kept for the next get_many.
  static constexpr std::size_t kKeepBytes = std::size_t{1} << 20;

  std::size_t size() const { return records_.size(); }
  std::span<const std::byte> operator[](std::size_t index) const {
    return {data_.get() + records_[index].offset, static_cast<std::size_t>(records_[index].length)};
  }
  std::span<const Record> records() const { return records_; }
  // Aligned to 64. Between the messages lie the queue's own words.
  const std::byte* data() const { return data_.get(); }
  std::size_t capacity() const { return capacity_; }

  // Drops the messages, and the memory beyond kKeepBytes if the messages needed less than a quarter.
  void clear();
  // Drops the messages and all memory.
  void trim();

 private:
  friend class MessageReader;
  struct Free {
    void operator()(std::byte* data) const;
  };

  // Room for `more` bytes behind those in use; keeps the content. Throws std::bad_alloc.
  void grow(std::size_t more);

  std::unique_ptr<std::byte[], Free> data_;
  std::size_t capacity_ = 0;
  std::size_t used_ = 0;
  std::vector<Record> records_;
};

}  // namespace gristmill
