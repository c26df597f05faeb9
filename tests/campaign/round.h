#pragma once

// One round, in a process of its own: whatever happens in it is a finding, and no more.

#include "tests/campaign/plan.h"
#include "tests/campaign/result.h"

namespace gristmill::campaign {

// Plays it to its end, or until it is plain that it has none. Returns false when interrupted (a signal set
// `interrupted`). The result is written in any case.
bool play_round(const Plan& plan, Result& result);

// Set by the signal handlers of the main program.
extern volatile int interrupted;

}  // namespace gristmill::campaign
