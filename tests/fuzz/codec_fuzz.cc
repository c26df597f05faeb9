// The compact form of Python's plain values, as who reads a message of another's decodes it.
//
// input │ a message behind its first byte

#include <Python.h>

#include "python/bindings/memory_region.h"
#include "python/bindings/message_codec.h"
#include "tests/fuzz/fuzz_input.h"

namespace gristmill::fuzz {
namespace {

bool start_python() {
  Py_InitializeEx(0);
  require(python::init_memory_region(), "the type of memory regions can be made");
  // Where NumPy lies; the decoder imports it when it meets an array. What else an instance's module may be is
  // not imported: it would be the module that is tested, and any at all.
  return PyRun_SimpleString("import sys; sys.path.append('" GRISTMILL_SITE_PACKAGES
                            "'); import numpy\n"
                            "def refuse(event, about):\n"
                            "    if event == 'pickle.find_class': raise ImportError(about[0])\n"
                            "sys.addaudithook(refuse)") == 0;
}

// What is decoded must be of use: repr() looks at all of it.
void use(PyObject* object) {
  PyObject* const text = PyObject_Repr(object);
  if (text == nullptr) PyErr_Clear();
  Py_XDECREF(text);
}

}  // namespace
}  // namespace gristmill::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gristmill;
  using namespace gristmill::fuzz;
  static const bool started = start_python();
  require(started, "Python and NumPy can be had");
  // Aligned as a message is, and of its very length, so that a read beyond it is noticed.
  auto* const memory = static_cast<std::byte*>(::aligned_alloc(64, (size + 1 + 63) / 64 * 64));
  std::byte* const begin = memory + ((size + 1 + 63) / 64 * 64 - (size + 1)) / 64 * 64;
  begin[0] = static_cast<std::byte>(python::kPlainForm);
  if (size > 0) std::memcpy(begin + 1, data, size);
  PyObject* const decoded = python::decode_plain({begin, size + 1}, nullptr);
  if (decoded == nullptr) {
    require(PyErr_Occurred() != nullptr, "a refusal is an exception");
    // UnicodeDecodeError is a ValueError; a module that is not there is an ImportError, as it is to pickle.
    require(PyErr_ExceptionMatches(PyExc_ValueError) || PyErr_ExceptionMatches(PyExc_MemoryError) ||
                PyErr_ExceptionMatches(PyExc_ImportError),
            "a refusal is a ValueError, or an ImportError");
    PyErr_Clear();
  } else {
    use(decoded);
    python::Outgoing out;
    require(python::encode_plain(decoded, out) != python::Encoding::kError, "what came out goes in");
    Py_DECREF(decoded);
  }
  std::free(memory);
  return 0;
}
