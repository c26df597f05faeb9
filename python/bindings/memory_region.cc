#include "python/bindings/memory_region.h"

#include <cstdlib>
#include <cstring>
#include <vector>

#include <sys/mman.h>

namespace gristmill::python {
namespace {

constexpr std::size_t kAlignment = 64;
// From here on malloc would map and unmap pages for each.
constexpr std::size_t kPoolFrom = 64 * 1024;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kCopyWithoutGil = 256 * 1024;

struct Region {
  PyObject_HEAD std::byte* data;
  std::size_t bytes;
  std::size_t allocated;  // 0: not our memory
  PyObject* owner;
};

PyTypeObject* region_type = nullptr;

struct Free {
  std::byte* data;
  std::size_t allocated;
};

// Guarded by the GIL. Never destroyed: arrays may outlive every static object.
std::vector<Free>& pool() {
  static auto* free = new std::vector<Free>;
  return *free;
}
std::size_t pooled_bytes = 0;

std::size_t rounded(std::size_t bytes) {
  const std::size_t unit = bytes >= kHugePage   ? kHugePage
                           : bytes >= kPoolFrom ? std::size_t{4096}
                                                : kAlignment;
  return (bytes + unit - 1) / unit * unit;
}

std::byte* allocate(std::size_t bytes, std::size_t* allocated) {
  *allocated = rounded(bytes == 0 ? 1 : bytes);
  if (*allocated >= kPoolFrom) {
    auto& free = pool();
    for (std::size_t i = free.size(); i-- > 0;) {
      // Not one that wastes more than half of it.
      if (free[i].allocated < *allocated || free[i].allocated > 2 * *allocated) continue;
      const Free found = free[i];
      free.erase(free.begin() + static_cast<std::ptrdiff_t>(i));
      pooled_bytes -= found.allocated;
      *allocated = found.allocated;
      return found.data;
    }
  }
  const std::size_t alignment = *allocated >= kHugePage ? kHugePage : kAlignment;
  void* data = std::aligned_alloc(alignment, *allocated);
  if (data != nullptr && *allocated >= kHugePage) madvise(data, *allocated, MADV_HUGEPAGE);
  return static_cast<std::byte*>(data);
}

void give_back(std::byte* data, std::size_t allocated) {
  if (allocated < kPoolFrom || allocated > kPooledBytes) {
    std::free(data);
    return;
  }
  auto& free = pool();
  // The longest unused ones make room.
  while (!free.empty() && pooled_bytes + allocated > kPooledBytes) {
    std::free(free.front().data);
    pooled_bytes -= free.front().allocated;
    free.erase(free.begin());
  }
  free.push_back({data, allocated});
  pooled_bytes += allocated;
}

void region_dealloc(PyObject* self) {
  auto* region = reinterpret_cast<Region*>(self);
  PyTypeObject* type = Py_TYPE(self);
  if (region->allocated > 0) give_back(region->data, region->allocated);
  Py_CLEAR(region->owner);
  type->tp_free(self);
  Py_DECREF(type);
}

int region_getbuffer(PyObject* self, Py_buffer* view, int flags) {
  auto* region = reinterpret_cast<Region*>(self);
  return PyBuffer_FillInfo(view, self, region->data, static_cast<Py_ssize_t>(region->bytes), 0, flags);
}

Py_ssize_t region_length(PyObject* self) {
  return static_cast<Py_ssize_t>(reinterpret_cast<Region*>(self)->bytes);
}

Region* make() {
  auto* region = reinterpret_cast<Region*>(region_type->tp_alloc(region_type, 0));
  if (region != nullptr) {
    region->data = nullptr;
    region->bytes = region->allocated = 0;
    region->owner = nullptr;
  }
  return region;
}

}  // namespace

PyObject* new_region(std::size_t bytes, std::byte** data) {
  Region* region = make();
  if (region == nullptr) return nullptr;
  region->data = allocate(bytes, &region->allocated);
  if (region->data == nullptr) {
    region->allocated = 0;
    Py_DECREF(region);
    return PyErr_NoMemory();
  }
  region->bytes = bytes;
  *data = region->data;
  return reinterpret_cast<PyObject*>(region);
}

PyObject* new_region_of(std::byte* data, std::size_t bytes, PyObject* owner) {
  Region* region = make();
  if (region == nullptr) return nullptr;
  region->data = data;
  region->bytes = bytes;
  region->owner = Py_NewRef(owner);
  return reinterpret_cast<PyObject*>(region);
}

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes < kCopyWithoutGil) {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return;
  }
  PyThreadState* state = PyEval_SaveThread();
  std::memcpy(to, from, bytes);
  PyEval_RestoreThread(state);
}

bool init_memory_region() {
  static PyType_Slot slots[] = {
      {Py_tp_dealloc, reinterpret_cast<void*>(&region_dealloc)},
      {Py_bf_getbuffer, reinterpret_cast<void*>(&region_getbuffer)},
      {Py_sq_length, reinterpret_cast<void*>(&region_length)},
      {Py_tp_doc, const_cast<char*>("Memory that an object which came through a queue looks into.")},
      {0, nullptr},
  };
  static PyType_Spec spec = {"gristmill._core.MemoryRegion", sizeof(Region), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  region_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return region_type != nullptr;
}

}  // namespace gristmill::python
