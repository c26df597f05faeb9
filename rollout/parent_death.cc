#include "rollout/parent_death.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>

namespace gristmill {

void die_with_parent(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // A parent that ended before the prctl sends no signal any more, but this process has another
  // parent by then.
  const pid_t actual = ::getppid();
  if (actual == parent) return;
  std::fprintf(stderr,
               "gristmill: process %d ends: its parent is process %d, expected %d (which has ended, or did "
               "not start it)\n",
               static_cast<int>(::getpid()), static_cast<int>(actual), static_cast<int>(parent));
  ::_exit(1);
}

}  // namespace gristmill
