#include "rollout/config.h"
