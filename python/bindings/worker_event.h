#pragma once

#include "rollout/worker_pool.h"

namespace gristmill::python {

inline const char* kind_name(WorkerEvent::Kind kind) {
  switch (kind) {
    case WorkerEvent::Kind::kStarted:
      return "started";
    case WorkerEvent::Kind::kDied:
      return "died";
    case WorkerEvent::Kind::kFailed:
      return "failed";
    case WorkerEvent::Kind::kHung:
      return "hung";
    case WorkerEvent::Kind::kRestarted:
      return "restarted";
    case WorkerEvent::Kind::kGaveUp:
      return "gave_up";
  }
  return "unknown";
}

}  // namespace gristmill::python
