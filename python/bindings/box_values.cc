// Python values as a box's words, and back.

#include <Python.h>
#include <datetime.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>

#include "python/bindings/box_object.h"

namespace gristmill::python {
namespace {

void load_datetime() {
  if (PyDateTimeAPI == nullptr) PyDateTime_IMPORT;
}

int refuse(const BoxField& field, PyObject* value) {
  PyErr_Format(PyExc_TypeError, "field '%U': expected %s, got %s (%R)", field.name,
               std::string(scalar_type_name(field.type)).c_str(), Py_TYPE(value)->tp_name, value);
  return -1;
}

// NumPy's scalars and 0-d arrays and tensors hold one Python value. Null without an exception: it is
// none of them.
PyObject* item_of(PyObject* value) {
  if (PyLong_Check(value) || PyFloat_Check(value) || PyUnicode_Check(value)) return nullptr;
  PyObject* dimensions = PyObject_GetAttrString(value, "ndim");
  if (dimensions == nullptr) {
    PyErr_Clear();
    return nullptr;
  }
  const bool scalar = PyLong_Check(dimensions) && PyLong_AsLong(dimensions) == 0;
  Py_DECREF(dimensions);
  if (!scalar) return nullptr;
  PyObject* item = PyObject_CallMethod(value, "item", nullptr);
  if (item == nullptr) PyErr_Clear();
  if (item != nullptr && Py_TYPE(item) == Py_TYPE(value)) Py_CLEAR(item);
  return item;
}

int integer_of(const BoxField& field, PyObject* value, std::uint64_t* word) {
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
  if (overflow != 0) {
    PyErr_Format(PyExc_OverflowError, "field '%U': expected an int of 64 bits (-2**63 to 2**63 - 1), got %R",
                 field.name, value);
    return -1;
  }
  *word = static_cast<std::uint64_t>(number);
  return 1;
}

int time_of(const BoxField& field, PyObject* value, std::uint64_t* word) {
  load_datetime();
  if (!PyDateTime_Check(value)) return refuse(field, value);
  const bool aware = PyDateTime_DATE_GET_TZINFO(value) != Py_None;
  if (aware != (field.type == ScalarType::kTimeUtc)) {
    PyErr_Format(PyExc_TypeError, "field '%U': expected a datetime %s a time zone, got %R", field.name,
                 aware ? "without" : "with", value);
    return -1;
  }
  PyObject* utc =
      aware ? PyObject_CallMethod(value, "astimezone", "O", PyDateTime_TimeZone_UTC) : Py_NewRef(value);
  if (utc == nullptr) return -1;
  using namespace std::chrono;
  const year_month_day date{year(PyDateTime_GET_YEAR(utc)),
                            month(static_cast<unsigned>(PyDateTime_GET_MONTH(utc))),
                            day(static_cast<unsigned>(PyDateTime_GET_DAY(utc)))};
  const microseconds since = duration_cast<microseconds>(sys_days(date).time_since_epoch()) +
                             hours(PyDateTime_DATE_GET_HOUR(utc)) + minutes(PyDateTime_DATE_GET_MINUTE(utc)) +
                             seconds(PyDateTime_DATE_GET_SECOND(utc)) +
                             microseconds(PyDateTime_DATE_GET_MICROSECOND(utc));
  Py_DECREF(utc);
  *word = static_cast<std::uint64_t>(static_cast<std::int64_t>(since.count()));
  return 1;
}

PyObject* time_from(const BoxField& field, std::uint64_t word) {
  load_datetime();
  using namespace std::chrono;
  const microseconds since(static_cast<std::int64_t>(word));
  const auto days_since = floor<days>(since);
  const year_month_day date{sys_days(days_since)};
  const hh_mm_ss time(since - days_since);
  PyObject* zone = field.type == ScalarType::kTimeUtc ? PyDateTime_TimeZone_UTC : Py_None;
  return PyDateTimeAPI->DateTime_FromDateAndTime(
      static_cast<int>(date.year()), static_cast<int>(static_cast<unsigned>(date.month())),
      static_cast<int>(static_cast<unsigned>(date.day())), static_cast<int>(time.hours().count()),
      static_cast<int>(time.minutes().count()), static_cast<int>(time.seconds().count()),
      static_cast<int>(time.subseconds().count()), zone, PyDateTimeAPI->DateTimeType);
}

bool text_words(const BoxField& field, const char* data, Py_ssize_t size,
                std::vector<std::uint64_t>& content) {
  if (size > static_cast<Py_ssize_t>(field.capacity)) {
    PyErr_Format(PyExc_ValueError, "field '%U': expected at most %u bytes, got %zd", field.name,
                 field.capacity, size);
    return false;
  }
  content.assign(1 + (static_cast<std::size_t>(size) + 7) / 8, 0);
  content[0] = static_cast<std::uint64_t>(size);
  std::memcpy(content.data() + 1, data, static_cast<std::size_t>(size));
  return true;
}

}  // namespace

bool plain_word_of(const BoxField& field, PyObject* value, std::uint64_t* word) {
  if (field.words != 1) return false;
  switch (field.type) {
    case ScalarType::kFloat64:
      if (!PyFloat_Check(value)) return false;
      *word = std::bit_cast<std::uint64_t>(PyFloat_AS_DOUBLE(value));
      return true;
    case ScalarType::kInt64: {
      if (!PyLong_Check(value) || PyBool_Check(value)) return false;
      int overflow = 0;
      *word = static_cast<std::uint64_t>(PyLong_AsLongLongAndOverflow(value, &overflow));
      return overflow == 0;
    }
    case ScalarType::kBool:
      *word = value == Py_True ? 1 : 0;
      return PyBool_Check(value);
    default:
      return false;
  }
}

int word_of(const BoxField& field, PyObject* value, std::uint64_t* word) {
  switch (field.type) {
    case ScalarType::kFloat64:
      if (PyFloat_Check(value)) {
        *word = std::bit_cast<std::uint64_t>(PyFloat_AS_DOUBLE(value));
        return 1;
      }
      if (PyLong_Check(value) && !PyBool_Check(value)) {
        const double number = PyLong_AsDouble(value);
        if (number == -1.0 && PyErr_Occurred() != nullptr) {
          PyErr_Clear();
          PyErr_Format(PyExc_OverflowError, "field '%U': expected a float, got an int too large for one",
                       field.name);
          return -1;
        }
        *word = std::bit_cast<std::uint64_t>(number);
        return 1;
      }
      break;
    case ScalarType::kInt64:
      if (PyLong_Check(value) && !PyBool_Check(value)) return integer_of(field, value, word);
      break;
    case ScalarType::kBool:
      if (PyBool_Check(value)) {
        *word = value == Py_True ? 1 : 0;
        return 1;
      }
      break;
    case ScalarType::kTime:
    case ScalarType::kTimeUtc:
      return time_of(field, value, word);
    case ScalarType::kText:
    case ScalarType::kBytes:
      return 0;
  }
  PyObject* item = item_of(value);
  if (item == nullptr) return refuse(field, value);
  const int done = word_of(field, item, word);
  Py_DECREF(item);
  return done;
}

bool words_of(const BoxField& field, PyObject* value, std::vector<std::uint64_t>& content) {
  if (field.type == ScalarType::kText) {
    if (!PyUnicode_Check(value)) return refuse(field, value) > 0;
    Py_ssize_t size = 0;
    const char* text = PyUnicode_AsUTF8AndSize(value, &size);
    return text != nullptr && text_words(field, text, size, content);
  }
  if (field.type == ScalarType::kBytes) {
    if (PyBytes_Check(value))
      return text_words(field, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value), content);
    if (PyByteArray_Check(value)) {
      return text_words(field, PyByteArray_AS_STRING(value), PyByteArray_GET_SIZE(value), content);
    }
    return refuse(field, value) > 0;
  }
  content.assign(1, 0);
  return word_of(field, value, content.data()) > 0;
}

PyObject* object_of(const BoxField& field, std::span<const std::uint64_t> words) {
  switch (field.type) {
    case ScalarType::kFloat64:
      return PyFloat_FromDouble(std::bit_cast<double>(words[0]));
    case ScalarType::kInt64:
      return PyLong_FromLongLong(static_cast<long long>(words[0]));
    case ScalarType::kBool:
      return PyBool_FromLong(words[0] != 0);
    case ScalarType::kTime:
    case ScalarType::kTimeUtc:
      return time_from(field, words[0]);
    case ScalarType::kText:
    case ScalarType::kBytes:
      break;
  }
  const auto size = static_cast<Py_ssize_t>(std::min<std::uint64_t>(words[0], field.capacity));
  const char* text = reinterpret_cast<const char*>(words.data() + 1);
  return field.type == ScalarType::kText ? PyUnicode_DecodeUTF8(text, size, "replace")
                                         : PyBytes_FromStringAndSize(text, size);
}

PyObject* text_of(const BoxField& field, std::span<const std::uint64_t> words) {
  const std::size_t used = 1 + (std::min<std::uint64_t>(words[0], field.capacity) + 7) / 8;
  if (field.seen_as != nullptr && field.seen.size() == used &&
      std::memcmp(field.seen.data(), words.data(), used * sizeof words[0]) == 0) {
    return Py_NewRef(field.seen_as);
  }
  PyObject* object = object_of(field, words);
  if (object != nullptr) {
    field.seen.assign(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(used));
    Py_XSETREF(field.seen_as, Py_NewRef(object));
  }
  return object;
}

}  // namespace gristmill::python
