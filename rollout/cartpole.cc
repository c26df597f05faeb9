#include "rollout/cartpole.h"

namespace gristmill {

EnvironmentSpec CartPole::spec() {
  EnvironmentSpec spec;
  spec.observation_shape = {4};
  spec.action_count = 2;
  return spec;
}

}  // namespace gristmill
