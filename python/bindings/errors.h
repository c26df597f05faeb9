#pragma once

#include <string>

namespace gristmill::python {

// Throws gristmill.QueueClosed.
[[noreturn]] void raise_closed(const std::string& what);
// Throws TimeoutError.
[[noreturn]] void raise_timeout(const std::string& what);

}  // namespace gristmill::python
