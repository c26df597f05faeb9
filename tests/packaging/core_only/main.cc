#include <cstdio>

#include "core/segment.h"
#include "core/trajectory_queue.h"

int main() {
  const gristmill::FieldSpecs spec = {{"reward", gristmill::DType::kFloat32, {16}}};
  auto queue = gristmill::TrajectoryQueue::create(gristmill::segment_name("consumer", "queue"), spec, 8);
  std::printf("%s holds %lld trajectories\n", queue->name().c_str(),
              static_cast<long long>(queue->capacity()));
  return queue->capacity() == 8 ? 0 : 1;
}
