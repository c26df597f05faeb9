#pragma once

#include <sys/types.h>

namespace gristmill {

// Ties the calling process to its parent: killed by SIGKILL as soon as `parent`, which must have
// started it, has ended, whatever ended it. Ends the process at once (exit status 1, a line on
// stderr) when `parent` is not its parent: it ended already, or never was. Workers call it first
// thing. Strictly, the kernel watches the *thread* that started this process.
void die_with_parent(pid_t parent);

}  // namespace gristmill
