#pragma once

// Adam (Kingma & Ba 2015) on one flat parameter buffer, with the gradient clipped by its global norm.
// No torch. One thread at a time.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace gristmill {

struct AdamOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-5;
  double max_grad_norm = 0.5;  // 0: no clipping
};

class Adam {
 public:
  Adam(std::int64_t parameter_count, const AdamOptions& options);

  struct Step {
    double grad_norm = 0;  // before clipping; NaN or infinite when the gradient is
    bool applied = false;  // false: the norm is not finite; parameters and state are as they were
  };
  // parameters and gradient: [parameter_count] contiguous. The gradient is only read.
  // Throws std::invalid_argument when a size differs.
  Step step(std::span<float> parameters, std::span<const float> gradient, double learning_rate);

  // For checkpoints.
  std::span<const float> first_moment() const { return first_moment_; }
  std::span<const float> second_moment() const { return second_moment_; }
  std::int64_t steps() const { return steps_; }
  // Throws std::invalid_argument when a size differs or `steps` is negative.
  void restore(std::span<const float> first_moment, std::span<const float> second_moment, std::int64_t steps);

 private:
  AdamOptions options_;
  std::vector<float> first_moment_, second_moment_;
  std::int64_t steps_ = 0;
};

// sqrt(sum x^2), accumulated in double.
double global_norm(std::span<const float> gradient);

enum class Schedule { kConstant, kLinear };
// "constant" or "linear". Throws std::invalid_argument naming both.
Schedule schedule_from_name(std::string_view name);
// At `progress` of the run in [0, 1] (clamped): base, or base falling linearly to 0.
double scheduled(Schedule schedule, double base, double progress);

}  // namespace gristmill
