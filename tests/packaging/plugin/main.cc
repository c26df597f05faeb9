// Steps the example's environments, env.id = argv[1], until the ball is down: 1 for a catch, -1 for a miss.

#include <cmath>
#include <cstdio>
#include <vector>

#include "rollout/environment.h"

namespace {

template <class T>
gristmill::Rows rows(std::vector<T>& values, std::ptrdiff_t stride) {
  return {reinterpret_cast<std::byte*>(values.data()), stride};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  constexpr std::size_t kCount = 4;
  const auto environments = gristmill::make_native_environments(argv[1], kCount, /*seed=*/1, 0, "{}");
  const std::size_t wide = environments->spec().observation_bytes();
  std::vector<std::byte> observations(kCount * wide), finals(kCount * wide);
  std::vector<float> rewards(kCount);
  std::vector<char> terminated(kCount), truncated(kCount);
  std::vector<std::int32_t> actions(kCount, 1);
  const auto stride = static_cast<std::ptrdiff_t>(wide);
  environments->reset(rows(observations, stride));
  for (int step = 1; step <= 100; ++step) {
    environments->step(rows(actions, sizeof(std::int32_t)), {.observations = rows(observations, stride),
                                                             .rewards = rows(rewards, sizeof(float)),
                                                             .terminated = rows(terminated, 1),
                                                             .truncated = rows(truncated, 1),
                                                             .final_observations = rows(finals, stride)});
    if (terminated[0] == 0) continue;
    std::printf("the ball is down after %d steps, reward %g\n", step, static_cast<double>(rewards[0]));
    return std::abs(rewards[0]) == 1.0F ? 0 : 1;
  }
  return 1;
}
