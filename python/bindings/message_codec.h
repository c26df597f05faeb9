#pragma once

// The compact form of plain values: None, bool, int (64 bits), float, str, bytes, and tuples, lists
// and dicts of these, of exactly these types; NumPy arrays of numbers too, and instances of plain classes
// (plain_class.h). Several times as quick as a pickle, because little is looked up, and no Python code runs.
//
// What comes out equals what went in, types and shared references included: a message in which a
// mutable object occurs twice is not encoded, but left to pickle, like everything else that is not
// plain. Identity of immutable objects (`is`) is not kept.

#include <Python.h>

#include <cstddef>
#include <span>

#include "python/bindings/message_form.h"

namespace gristmill::python {

enum class Encoding { kDone, kNotPlain, kError };

// Appends `object` to the message in progress, first byte included. kNotPlain: it was restarted.
// kError: an exception is set.
Encoding encode_plain(PyObject* object, Outgoing& out);

// A new reference, or nullptr with an exception set: ValueError when the bytes are not this form
// (nothing in them is trusted). owner: keeps the message's memory, so that arrays look into it;
// nullptr: arrays are copied.
PyObject* decode_plain(std::span<const std::byte> message, PyObject* owner);

}  // namespace gristmill::python
