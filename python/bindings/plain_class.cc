#include "python/bindings/plain_class.h"

#include <pybind11/pybind11.h>

#include <unordered_map>

#include "python/bindings/pickling.h"

namespace gristmill::python {
namespace {

namespace py = pybind11;

// Classes made by and by, for a while each, must not pile up.
constexpr std::size_t kMostKept = 1024;
// One that keeps changing is not worth looking at each time.
constexpr int kMostLooks = 100;

struct Known {
  PyObject* type = nullptr;  // kept, so that its address is not another's later
  unsigned version = 0;      // of the type and its bases, as Python counts changes
  int looks = 0;
  bool plain = false;
  PlainClass found;
};

std::unordered_map<PyTypeObject*, Known>& known() {
  static auto* all = new std::unordered_map<PyTypeObject*, Known>;
  return *all;
}

// 0: changed since it was last looked at.
unsigned version_of(PyTypeObject* type) {
#ifdef Py_TPFLAGS_VALID_VERSION_TAG
  if ((type->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG) == 0) return 0;
#endif
  return type->tp_version_tag;
}

bool is_plain_base(const py::handle& base) {
  auto* type = reinterpret_cast<PyTypeObject*>(base.ptr());
  if (type == &PyBaseObject_Type) return true;
  if ((type->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0) return false;
  const py::object contents = base.attr("__dict__");
  for (const char* name : {"__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__getnewargs__",
                           "__getnewargs_ex__", "__new__", "__getattribute__", "__dict__"}) {
    // What a class statement adds by itself: the descriptor of the instances' __dict__.
    if (std::string_view(name) == "__dict__") {
      if (contents.contains(name) &&
          !PyType_IsSubtype(Py_TYPE(py::object(contents[name]).ptr()), &PyGetSetDescr_Type))
        return false;
    } else if (contents.contains(name)) {
      return false;
    }
  }
  return !contents.contains("__slots__") || py::len(contents["__slots__"]) == 0;
}

bool is_plain(PyTypeObject* type, PlainClass& found) {
  const auto self = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(type));
  PyTypeObject* meta = Py_TYPE(self.ptr());
  if (meta != &PyType_Type && !py::type::of(self).is(py::module_::import("abc").attr("ABCMeta")))
    return false;
  if (type->tp_new != PyBaseObject_Type.tp_new || type->tp_itemsize != 0 || type->tp_dictoffset == 0)
    return false;
  for (const auto& base : py::reinterpret_borrow<py::tuple>(type->tp_mro)) {
    if (!is_plain_base(base)) return false;
  }
  const py::object module = self.attr("__module__");
  const auto name = self.attr("__qualname__").cast<std::string>();
  if (!py::isinstance<py::str>(module) || name.find('.') != std::string::npos) return false;
  found.name = module.cast<std::string>() + '\0' + name;
  if (found.name.size() > 255) return false;
  found.module = py::object(module).release().ptr();
  found.attribute = PyUnicode_InternFromString(name.c_str());
  return true;
}

void forget(Known& one) {
  Py_CLEAR(one.found.module);
  Py_CLEAR(one.found.attribute);
}

void look(PyTypeObject* type, Known& one) {
  forget(one);
  one.plain = false;
  if (++one.looks > kMostLooks) return;
  try {
    one.plain = is_plain(type, one.found);
  } catch (py::error_already_set&) {
  }
  // Looking something up gives the type a version, if it has none.
  PyObject* any = PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "__init__");
  if (any == nullptr) PyErr_Clear();
  Py_XDECREF(any);
  one.version = version_of(type);
}

// What the module has under the name; borrowed, nullptr when there is none.
PyObject* in_module(PyObject* module, PyObject* attribute) {
  PyObject* modules = PyImport_GetModuleDict();
  PyObject* found = PyDict_GetItemWithError(modules, module);
  if (found == nullptr || !PyModule_Check(found)) return nullptr;
  return PyDict_GetItemWithError(PyModule_GetDict(found), attribute);
}

}  // namespace

const PlainClass* plain_class(PyTypeObject* type) {
  auto at = known().find(type);
  if (at == known().end()) {
    if (known().size() >= kMostKept) {
      for (auto& [key, one] : known()) {
        forget(one);
        Py_CLEAR(one.type);
      }
      known().clear();
    }
    at = known().emplace(type, Known{}).first;
    at->second.type = Py_NewRef(reinterpret_cast<PyObject*>(type));
    look(type, at->second);
  } else if ((at->second.version == 0 || at->second.version != version_of(type)) &&
             at->second.looks <= kMostLooks) {
    look(type, at->second);
  }
  Known& one = at->second;
  if (!one.plain || one.version == 0 || one.looks > kMostLooks) return nullptr;
  // These change without a trace in the class.
  if (in_module(one.found.module, one.found.attribute) != one.type || has_reducer(one.type)) {
    PyErr_Clear();
    return nullptr;
  }
  return &one.found;
}

PyTypeObject* find_plain_class(std::string_view name) {
  const std::size_t middle = name.find('\0');
  PyObject* found = nullptr;
  if (middle != std::string_view::npos) {
    PyObject* module = PyUnicode_FromStringAndSize(name.data(), static_cast<Py_ssize_t>(middle));
    PyObject* attribute = nullptr;
    if (module != nullptr) {
      attribute = PyUnicode_FromStringAndSize(name.data() + middle + 1,
                                              static_cast<Py_ssize_t>(name.size() - middle - 1));
    }
    if (attribute != nullptr) {
      found = in_module(module, attribute);
      if (found == nullptr && !PyErr_Occurred()) {
        // As pickle does.
        PyObject* imported = PySys_Audit("pickle.find_class", "OO", module, attribute) == 0
                                 ? PyImport_Import(module)
                                 : nullptr;
        Py_XDECREF(imported);
        if (imported != nullptr) found = in_module(module, attribute);
      }
    }
    Py_XDECREF(module);
    Py_XDECREF(attribute);
  }
  if (PyErr_Occurred()) return nullptr;
  auto* type = reinterpret_cast<PyTypeObject*>(found);
  if (found == nullptr || !PyType_Check(found) || plain_class(type) == nullptr) {
    const std::string shown(name.substr(0, middle == std::string_view::npos ? 0 : middle));
    PyErr_Format(
        PyExc_ValueError,
        "the message is damaged, or has an instance of a class that module '%s' does not have, or has "
        "with a __reduce__, __setstate__ or the like of its own",
        shown.c_str());
    return nullptr;
  }
  return type;
}

}  // namespace gristmill::python
