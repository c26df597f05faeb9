#pragma once

// Which classes' instances are plain: those that pickle would send as the name of their class and their
// __dict__, so that the compact form can do the same, several times as quickly. Everything here needs the
// GIL.

#include <Python.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace gristmill::python {

struct PlainClass {
  std::string name;  // module, a zero, name: where it is found
  PyObject* module = nullptr;
  PyObject* attribute = nullptr;
};

// nullptr when its instances are pickle's: classes with slots, a base or metaclass of another language, a
// method or reducer that says how to pickle them, or whose module does not have them under their name. Valid
// until the next call.
const PlainClass* plain_class(PyTypeObject* type);

// The class of this name; borrowed from its module, which is imported when it must be. nullptr with an
// exception set: also when its instances are not plain.
PyTypeObject* find_plain_class(std::string_view name);

}  // namespace gristmill::python
