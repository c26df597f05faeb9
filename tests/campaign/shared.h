#pragma once

// One T in memory that forked children share and that survives any of them: where a process writes
// down what it is about to do, and has done.

#include <sys/mman.h>

#include <cstddef>
#include <new>

namespace gristmill::campaign {

// T must be usable from several processes (atomics), and as zeroed memory. Never destroyed, only unmapped.
template <class T>
class Shared {
 public:
  explicit Shared(std::size_t count = 1) : bytes_(count * sizeof(T)), count_(count) {
    void* memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    items_ = static_cast<T*>(memory);
    for (std::size_t i = 0; i < count; ++i) new (items_ + i) T();
  }
  ~Shared() { ::munmap(items_, bytes_); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  std::size_t size() const { return count_; }
  T& operator[](std::size_t i) const { return items_[i]; }
  T& operator*() const { return *items_; }
  T* operator->() const { return items_; }

 private:
  std::size_t bytes_;
  std::size_t count_;
  T* items_;
};

}  // namespace gristmill::campaign
