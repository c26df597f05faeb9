#pragma once

#include <string>
#include <vector>

namespace gristmill {

// Exit statuses of a program that was never run: of the dynamic loader (a shared library is missing), of a
// shell or env that did not find it (127), or may not execute it (126).
bool never_ran(int exit_status);

// The shared libraries that the dynamic loader does not find for `program` in `environment`, by name; empty
// when it finds all, or `program` is a script. Runs the loader, not the program; blocks a second at most.
std::vector<std::string> missing_libraries(const std::string& program,
                                           const std::vector<std::string>& environment);

}  // namespace gristmill
