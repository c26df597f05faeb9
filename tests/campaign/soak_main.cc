// gristmill-soak: the fault campaign over core/. `gristmill soak` starts it, reads its lines and shows them.
//
//   gristmill-soak --seconds 60 --seed 1 --only queue,box
//   gristmill-soak --seed 1 --round 17             # one round again
//   gristmill-soak --seconds 5 --mistake drop      # must find something
//   gristmill-soak --seconds 600 --stop-at-first   # ends with the first round in which something was found
//
// Exit status: 0 when nothing was found, 1 when something was, 2 for bad arguments, 130 when interrupted.

#include <signal.h>
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "tests/campaign/points.h"
#include "tests/campaign/report.h"
#include "tests/campaign/round.h"

namespace gristmill::campaign {
namespace {

struct Options {
  double seconds = 60;
  std::uint64_t seed = 1;
  std::uint64_t first_round = 0;
  std::uint64_t rounds = ~std::uint64_t{0};
  std::uint64_t round_ms = 1500;
  std::uint64_t stall_limit_ms = 100;
  std::array<bool, kParts> wanted{};
  Mistake mistake = Mistake::kNone;
  bool list_points = false;
  bool stop_at_first = false;
  bool dies_with_parent = false;
};

[[noreturn]] void refuse(const std::string& what) {
  std::fprintf(stderr, "gristmill-soak: %s\n", what.c_str());
  std::exit(2);
}

std::uint64_t whole_number(std::string_view option, const std::string& text) {
  char* end = nullptr;
  const unsigned long long value = std::strtoull(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || text[0] == '-') {
    refuse(std::string(option) + " " + text + ": expected a whole number");
  }
  return value;
}

template <std::size_t N>
std::string listed(const std::array<std::string_view, N>& names) {
  std::string all;
  for (const std::string_view name : names) all += (all.empty() ? "" : ", ") + std::string(name);
  return all;
}

void choose_parts(Options& options, const std::string& text) {
  for (std::size_t from = 0; from <= text.size();) {
    const std::size_t comma = std::min(text.find(',', from), text.size());
    const std::string name = text.substr(from, comma - from);
    const auto part = named<Part>(kPartNames, name);
    if (!part) refuse("--only " + text + ": '" + name + "' is none of " + listed(kPartNames));
    options.wanted[static_cast<std::size_t>(*part)] = true;
    from = comma + 1;
  }
}

Options parse(int count, char** words) {
  Options options;
  bool chosen = false;
  for (int i = 1; i < count; ++i) {
    const std::string_view option = words[i];
    if (option == "--list-points") {
      options.list_points = true;
      continue;
    }
    if (option == "--stop-at-first") {
      options.stop_at_first = true;
      continue;
    }
    if (option == "--die-with-parent") {
      options.dies_with_parent = true;
      continue;
    }
    if (i + 1 == count) refuse(std::string(option) + ": unknown, or its value is missing");
    const std::string value = words[++i];
    if (option == "--seconds") {
      options.seconds = static_cast<double>(whole_number(option, value));
    } else if (option == "--seed") {
      options.seed = whole_number(option, value);
    } else if (option == "--round") {
      options.first_round = whole_number(option, value);
      options.rounds = 1;
    } else if (option == "--rounds") {
      options.rounds = whole_number(option, value);
    } else if (option == "--round-ms") {
      options.round_ms = std::max<std::uint64_t>(1, whole_number(option, value));
    } else if (option == "--stall-limit-ms") {
      options.stall_limit_ms = whole_number(option, value);
    } else if (option == "--only") {
      choose_parts(options, value);
      chosen = true;
    } else if (option == "--mistake") {
      const auto mistake = named<Mistake>(kMistakeNames, value);
      if (!mistake) refuse("--mistake " + value + ": expected one of " + listed(kMistakeNames));
      options.mistake = *mistake;
    } else {
      refuse(std::string(option) + ": unknown option");
    }
  }
  if (!chosen) options.wanted.fill(true);
  return options;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int run(const Options& options) {
  const auto start = std::chrono::steady_clock::now();
  static std::array<Result, kParts> totals;
  std::uint64_t played = 0;
  std::uint64_t violations = 0;
  for (std::uint64_t number = options.first_round; played < options.rounds; ++number) {
    if (options.rounds != 1 && seconds_since(start) >= options.seconds) break;
    Plan plan = Plan::of(options.seed, number);
    const auto part = static_cast<std::size_t>(plan.part);
    if (!options.wanted[part]) continue;
    plan.duration = std::chrono::milliseconds(options.round_ms);
    plan.stall_limit = std::chrono::milliseconds(options.stall_limit_ms);
    plan.mistake = options.mistake;
    const auto round_start = std::chrono::steady_clock::now();
    Result result;
    if (!play_round(plan, result)) return 130;
    ++played;
    violations += result.violations();
    totals[part].add(result);
    std::printf("%s\n", round_line(plan, result, seconds_since(round_start)).c_str());
    std::fflush(stdout);
    if (options.stop_at_first && violations > 0) break;
  }
  std::printf("%s\n", summary_line(options.seed, played, seconds_since(start), totals.data()).c_str());
  return violations == 0 ? 0 : 1;
}

}  // namespace
}  // namespace gristmill::campaign

int main(int count, char** words) {
  using namespace gristmill::campaign;
  const Options options = parse(count, words);
  if (options.list_points) {
    std::printf("%s\n", points_line().c_str());
    return 0;
  }
  if (options.dies_with_parent) ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // and the rounds with it
  struct sigaction action {};
  action.sa_handler = [](int) { interrupted = 1; };
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  return run(options);
}
