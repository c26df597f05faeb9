#include "python/bindings/memory_region.h"

#include "core/message_copy.h"
#include "python/bindings/memory_pool.h"
#include "python/bindings/type_tables.h"

namespace gristmill::python {
namespace {

constexpr std::size_t kCopyWithoutGil = 256 * 1024;

struct Region {
  PyObject_HEAD std::byte* data;
  std::size_t bytes;
  std::size_t allocated;  // 0: not our memory
  PyObject* owner;
};

PyTypeObject* region_type = nullptr;

void region_dealloc(PyObject* self) {
  auto* region = reinterpret_cast<Region*>(self);
  PyTypeObject* type = Py_TYPE(self);
  if (region->allocated > 0) give_back_memory(region->data, region->allocated);
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
  region->data = allocate_memory(bytes, &region->allocated);
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

void copy_message(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes < kCopyWithoutGil) {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return;
  }
  PyThreadState* state = PyEval_SaveThread();
  copy_out_of_ring(to, from, bytes);
  PyEval_RestoreThread(state);
}

bool init_memory_region() {
  static PyType_Slot slots[] = {
      {Py_tp_dealloc, slot(&region_dealloc)},
      {Py_bf_getbuffer, slot(&region_getbuffer)},
      {Py_sq_length, slot(&region_length)},
      {Py_tp_doc, const_cast<char*>("Memory that an object which came through a queue looks into.")},
      {0, nullptr},
  };
  static PyType_Spec spec = {"gristmill._core.MemoryRegion", sizeof(Region), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  region_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return region_type != nullptr;
}

}  // namespace gristmill::python
