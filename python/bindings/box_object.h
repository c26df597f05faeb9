#pragma once

// gristmill._box.BoxBase: a box behind Python's own C interface, because dispatch by pybind11 costs
// more than the reads and writes of a box do.

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "core/box.h"

namespace gristmill::python {

namespace py = pybind11;

struct BoxField {
  PyObject* name = nullptr;  // interned; owned by the BoxObject
  int scalar = -1;           // index among the scalars, or
  int array = -1;            // among the arrays
  ScalarType type = ScalarType::kInt64;
  std::uint32_t word = 0;
  std::uint32_t words = 0;
  std::uint32_t capacity = 0;
  // Of an array: NumPy's dtype (owned by the BoxState) and shape, and bytes in all.
  PyObject* dtype = nullptr;
  std::vector<py::ssize_t> shape = {};
  std::size_t bytes = 0;
  // The last text that was read, and its object: texts change seldom.
  mutable std::vector<std::uint64_t> seen = {};
  mutable PyObject* seen_as = nullptr;
};

// What is behind an open BoxBase. Pins and arrays that were handed out share it, so that they outlive
// close().
struct BoxState {
  std::shared_ptr<Box> box;
  std::vector<BoxField> fields;  // scalars first, then arrays
  std::size_t words = 0;         // of all scalars
  std::size_t array_count = 0;
  std::vector<std::int16_t> table;    // open addressing by the name's address; -1: free
  PyObject* snapshot_type = nullptr;  // a named tuple of all fields and `version`

  BoxState() = default;
  BoxState(const BoxState&) = delete;
  BoxState& operator=(const BoxState&) = delete;
  ~BoxState();

  void index();
  // Null: no such field. The pointer decides for interned names, the text for others.
  const BoxField* find(PyObject* name) const;
  const BoxField* find_text(PyObject* name) const;
};

// The state of an open box. Throws TypeError for what is not a BoxBase, and BoxClosedError.
const std::shared_ptr<BoxState>& state_of(const py::handle& box);
const BoxField& field_of(const BoxState& state, const py::handle& name);  // throws KeyError

// A value as the field's words; `content` receives 1 + capacity / 8 of them at most. False: a Python
// exception is set that names the field and both sides.
bool words_of(const BoxField& field, PyObject* value, std::vector<std::uint64_t>& content);
// The same for one-word fields. -1: error, 0: not a one-word field. May run Python code.
int word_of(const BoxField& field, PyObject* value, std::uint64_t* word);
// For the types that are written most, without running any Python code. False, and no exception: use
// word_of.
bool plain_word_of(const BoxField& field, PyObject* value, std::uint64_t* word);
// A new reference, or null with an exception set.
PyObject* object_of(const BoxField& field, std::span<const std::uint64_t> words);
// As object_of; of a text that is the same as the last, the same object.
PyObject* text_of(const BoxField& field, std::span<const std::uint64_t> words);

// Where an array's content lies that can be copied as it is: the field's dtype and shape, contiguous, and
// writeable if it is to be written. Null, and no exception: it takes more than that.
std::byte* plain_memory(const BoxField& field, PyObject* value, bool writeable);
// A new array for the field; its memory is added to `out`.
py::object new_array(const BoxField& field, std::vector<std::byte*>* out);
// An array that looks into `data`, cannot be written, and keeps `base` alive.
py::object view_into(const BoxField& field, const std::byte* data, const py::handle& base);

// An update under way: words and arrays, kept alive.
class Changes {
 public:
  explicit Changes(const BoxState& state) : state_(state) {}
  // Throws py::error_already_set naming the field.
  void add(const BoxField& field, PyObject* value);
  // Blocks without the GIL until it is this writer's turn. Throws.
  std::uint64_t commit(Deadline deadline);
  std::uint64_t commit(Box::Write& write);

 private:
  struct Piece {
    std::size_t first;
    std::vector<std::uint64_t> content;
  };
  std::vector<Box::Words> words() const;
  std::vector<const std::byte*> arrays() const;

  const BoxState& state_;
  std::vector<Piece> pieces_;
  std::vector<std::pair<std::size_t, py::object>> arrays_;  // index and a contiguous array
  std::vector<std::pair<std::size_t, const std::byte*>> pointers_;
};

// The version of a write, or throws what its outcome means.
std::uint64_t version_or_throw(const BoxState& state, const Box::PublishResult& result);
// A C-contiguous NumPy array of the field's dtype and shape, from a tensor, an array or what converts.
py::array array_for(const FieldSpec& spec, const py::handle& value);
void set_state(const py::handle& box, std::shared_ptr<BoxState> state);
// A fresh copy of one array.
py::object copy_of(const BoxState& state, const BoxField& field);
// Copies arrays of one version to where the mapping says. Throws.
std::uint64_t read_into(const BoxState& state, const py::dict& out);

// From this size on copies run without the GIL.
inline constexpr std::size_t kCopyWithoutGil = 64 * 1024;

// Runs what may throw; null, and the exception set, when it did.
template <class Body>
PyObject* guarded(Body&& body) noexcept {
  try {
    return body();
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (const py::builtin_exception& error) {
    error.set_error();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

// Of gristmill.Box's methods those that are called all the time; box_methods.cc.
struct BoxMethod {
  PyObject* name = nullptr;  // interned
  PyMethodDef* definition = nullptr;
};
std::span<const BoxMethod> box_methods();
// box_bound.cc. A new reference, or null with an exception set.
PyObject* bind_method(PyMethodDef* definition, PyObject* self);
void make_bound_type();
PyMethodDef* box_method_table();
PyObject* box_close(PyObject* self, PyObject*);
// The state of `self`, or null with BoxClosedError set. A reference into `self`: whoever lets Python code
// run, or lets go of the GIL, holds a copy.
const std::shared_ptr<BoxState>* open_state_of(PyObject* self);

// The type gristmill._box.PinBase; box_pin.cc. pin(box, names) makes an instance of the class that
// set_pin_type was given.
void add_pin_type(py::module_& module);
PyObject* new_pin(const std::shared_ptr<BoxState>& state, PyObject* const* names, Py_ssize_t count);

void add_box_type(py::module_& module);
void bind_box_calls(py::module_& module);
[[noreturn]] void raise_box_closed();

}  // namespace gristmill::python
