#pragma once

#include <memory>

#include "rollout/launch.h"

namespace gristmill::python {

// gristmill._core makes it, gristmill._train uses it: the workers start before libtorch is loaded
// here. Empty once closed.
struct LaunchHolder {
  std::unique_ptr<Launch> launch;
};

}  // namespace gristmill::python
