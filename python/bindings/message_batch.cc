#include "python/bindings/message_batch.h"

#include "python/bindings/type_tables.h"

namespace gristmill::python {
namespace {

// Keeps taken messages, and the queue they lie in.
struct Slab {
  PyObject_HEAD MessageQueue::Taken* taken;  // owned
  PyObject* queue;
};

struct MessageBatch {
  PyObject_HEAD PyObject* objects;  // a list; null when released
  PyObject* slab;
};

PyTypeObject* slab_type = nullptr;
PyTypeObject* batch_type = nullptr;

void slab_dealloc(PyObject* self) {
  auto* slab = reinterpret_cast<Slab*>(self);
  PyTypeObject* type = Py_TYPE(self);
  delete slab->taken;
  Py_CLEAR(slab->queue);
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* batch_objects(PyObject* self) {
  PyObject* objects = reinterpret_cast<MessageBatch*>(self)->objects;
  if (objects == nullptr) PyErr_SetString(PyExc_ValueError, "the batch is released");
  return objects;
}

void batch_drop(MessageBatch* batch) {
  Py_CLEAR(batch->objects);
  if (batch->slab != nullptr) reinterpret_cast<Slab*>(batch->slab)->taken->release();
  Py_CLEAR(batch->slab);
}

PyObject* batch_release(PyObject* self, PyObject*) {
  batch_drop(reinterpret_cast<MessageBatch*>(self));
  Py_RETURN_NONE;
}

PyObject* batch_enter(PyObject* self, PyObject*) { return batch_objects(self) ? Py_NewRef(self) : nullptr; }

PyObject* batch_exit(PyObject* self, PyObject*) { return batch_release(self, nullptr); }

Py_ssize_t batch_length(PyObject* self) {
  PyObject* objects = reinterpret_cast<MessageBatch*>(self)->objects;
  return objects != nullptr ? PyList_GET_SIZE(objects) : 0;
}

PyObject* batch_item(PyObject* self, PyObject* index) {
  PyObject* objects = batch_objects(self);
  return objects != nullptr ? PyObject_GetItem(objects, index) : nullptr;
}

PyObject* batch_iterate(PyObject* self) {
  PyObject* objects = batch_objects(self);
  return objects != nullptr ? PyObject_GetIter(objects) : nullptr;
}

int batch_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(reinterpret_cast<MessageBatch*>(self)->objects);
  return 0;
}

int batch_clear(PyObject* self) {
  Py_CLEAR(reinterpret_cast<MessageBatch*>(self)->objects);
  return 0;
}

void batch_dealloc(PyObject* self) {
  auto* batch = reinterpret_cast<MessageBatch*>(self);
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  // Arrays that still look into the queue keep the slab.
  Py_CLEAR(batch->objects);
  Py_CLEAR(batch->slab);
  type->tp_free(self);
  Py_DECREF(type);
}

}  // namespace

PyObject* new_slab(PyObject* queue, MessageQueue::Taken** taken) {
  auto* slab = reinterpret_cast<Slab*>(slab_type->tp_alloc(slab_type, 0));
  if (slab == nullptr) return nullptr;
  slab->taken = new MessageQueue::Taken;
  slab->queue = Py_NewRef(queue);
  *taken = slab->taken;
  return reinterpret_cast<PyObject*>(slab);
}

PyObject* new_batch(PyObject* objects, PyObject* slab) {
  auto* batch = reinterpret_cast<MessageBatch*>(batch_type->tp_alloc(batch_type, 0));
  if (batch == nullptr) {
    Py_DECREF(objects);
    Py_DECREF(slab);
    return nullptr;
  }
  batch->objects = objects;
  batch->slab = slab;
  return reinterpret_cast<PyObject*>(batch);
}

bool init_batch(PyObject* module) {
  static PyType_Slot slab_slots[] = {{Py_tp_dealloc, slot(&slab_dealloc)}, {0, nullptr}};
  static PyType_Spec slab_spec = {"gristmill._core.MessageSlab", sizeof(Slab), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slab_slots};
  slab_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&slab_spec));

  static PyMethodDef methods[] = {
      {"release", &batch_release, METH_NOARGS,
       "release($self, /)\n--\n\nFrees the messages' space. Idempotent. Arrays must not be used afterwards."},
      {"__enter__", &batch_enter, METH_NOARGS, "__enter__($self, /)\n--\n\n"},
      {"__exit__", &batch_exit, METH_VARARGS, "__exit__($self, /, *args)\n--\n\nReleases."},
      {nullptr, nullptr, 0, nullptr},
  };
  static PyType_Slot slots[] = {
      {Py_tp_dealloc, slot(&batch_dealloc)},
      {Py_tp_traverse, slot(&batch_traverse)},
      {Py_tp_clear, slot(&batch_clear)},
      {Py_tp_methods, methods},
      {Py_tp_iter, slot(&batch_iterate)},
      {Py_mp_length, slot(&batch_length)},
      {Py_mp_subscript, slot(&batch_item)},
      {Py_tp_doc,
       const_cast<char*>(
           "Messages taken without a copy: a sequence whose arrays and memoryviews look into the queue.\n\n"
           "Their space is free again after release(), after the `with` block, or when the batch and all its "
           "views are gone; views must not be used after an explicit release.")},
      {0, nullptr},
  };
  static PyType_Spec spec = {"gristmill._core.MessageBatch", sizeof(MessageBatch), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_HAVE_GC,
                             slots};
  batch_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return slab_type != nullptr && batch_type != nullptr &&
         PyModule_AddObjectRef(module, "MessageBatch", reinterpret_cast<PyObject*>(batch_type)) == 0;
}

}  // namespace gristmill::python
