#include "tests/campaign/tormentor.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>

#include "core/fault_point.h"
#include "tests/campaign/points.h"

namespace gristmill::campaign {
namespace {

constexpr std::uint64_t kLongestTend = 5'000'000;

// In a player: its slot.
Slot* playing_in = nullptr;

std::size_t total(const std::vector<Role>& cast) {
  std::size_t sum = 0;
  for (const Role& role : cast) sum += role.count;
  return sum;
}

// 'R', 'S', … of /proc/<pid>/stat; '?' when it cannot be read.
char state_of(pid_t pid) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
  std::FILE* file = std::fopen(path, "re");
  if (file == nullptr) return '?';
  char state = '?';
  if (std::fscanf(file, "%*d (%*[^)]) %c", &state) != 1) state = '?';
  std::fclose(file);
  return state;
}

}  // namespace

Tormentor::Tormentor(const Plan& plan, Scene& scene, Result& result)
    : plan_(plan),
      scene_(scene),
      result_(result),
      random_(plan.seed ^ 0x7043, plan.number),
      cast_(scene.cast()),
      processes_(total(cast_)),
      slots_(processes_.size()),
      points_(points_of(plan.part)) {
  std::size_t slot = 0;
  for (std::size_t role = 0; role < cast_.size(); ++role) {
    for (std::size_t i = 0; i < cast_[role].count; ++i) processes_[slot++].role = role;
  }
  // Rare places are armed more often.
  const std::size_t ordinary = points_.size();
  for (std::size_t i = 0; i < ordinary; ++i) {
    const Point& point = all_points()[points_[i]];
    if (point.rare) points_.insert(points_.end(), 2, points_[i]);
    if (scene.favours(point.name)) points_.insert(points_.end(), ordinary / 2, points_[i]);
  }
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &child, nullptr);
}

Tormentor::~Tormentor() {
  for (const Process& process : processes_) {
    if (process.pid == 0) continue;
    ::kill(process.pid, SIGKILL);
    ::waitpid(process.pid, nullptr, 0);
  }
}

void Tormentor::start(std::size_t slot, std::size_t armed) {
  Process& process = processes_[slot];
  slots_[slot].reset();
  process.life = ++lives_;
  process.killed = false;
  process.fell = false;
  process.continue_at = 0;
  bool stops = false;
  int pass = 1;
  if (armed == kAny) {
    armed = kNone;
    if (!points_.empty() && random_.chance(plan_.arms)) {
      armed = points_[random_.below(points_.size())];
      stops = !may_be_killed(slot) || random_.chance(plan_.stops);
      pass = static_cast<int>(random_.chance(0.5) ? 1 : random_.between(1, 40));
    }
  }
  process.armed = armed;
  scene_.began(slot, process.role, process.life);
  const pid_t pid = ::fork();
  if (pid == 0) play(slot, process.armed, stops, pass);
  if (pid < 0) {
    result_.find(Finding::kBroken, 1, "fork failed with errno " + std::to_string(errno));
    hopeless_ = true;
    return;
  }
  process.pid = pid;
  result_.count(Measure::kLives, 1);
}

void Tormentor::play(std::size_t slot, std::size_t armed, bool stops, int pass) {
  const pid_t round = ::getppid();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != round) ::_exit(1);  // it died before the line above
  Player player(slots_[slot], slot, *state_, plan_, processes_[slot].life);
  int code = 1;
  try {
    if (armed != kNone) {
      playing_in = &slots_[slot];
      fault::call_before_raise([] { playing_in->at_point_since.store(nanoseconds_now()); });
      fault::arm(all_points()[armed].name, stops ? fault::Action::kStop : fault::Action::kKill, pass);
    }
    code = scene_.play(processes_[slot].role, player);
  } catch (const std::exception& error) {
    code = player.fail(Finding::kBroken, std::string("an exception: ") + error.what());
  }
  ::_exit(code);
}

bool Tormentor::may_be_killed(std::size_t slot) const {
  const Role::Side side = cast_[processes_[slot].role].side;
  return !(plan_.spare_takers && side == Role::Side::kTakes) &&
         !(plan_.spare_putters && side == Role::Side::kPuts);
}

std::vector<std::size_t> Tormentor::living() const {
  std::vector<std::size_t> slots;
  for (std::size_t slot = 0; slot < processes_.size(); ++slot) {
    if (processes_[slot].pid != 0 && !processes_[slot].killed) slots.push_back(slot);
  }
  return slots;
}

void Tormentor::kill(std::size_t slot, How how) {
  Process& process = processes_[slot];
  if (process.pid == 0 || process.killed) return;
  if (how == How::kKilledAtRandom) {
    if (process.continue_at != 0) {
      how = How::kKilledStopped;
    } else if (slots_[slot].op_since.load() != 0 && state_of(process.pid) == 'S') {
      how = How::kKilledAsleep;
    }
  }
  process.killed = true;
  ::kill(process.pid, SIGKILL);
  count(slot, how);
}

void Tormentor::stop(std::size_t slot) {
  Process& process = processes_[slot];
  if (process.continue_at != 0) return;
  const std::uint64_t now = nanoseconds_now();
  const std::uint64_t us =
      random_.chance(0.1) ? random_.between(20'000, 120'000) : random_.between(200, 5000);
  process.continue_at = now + us * 1000;
  excuse();
  ::kill(process.pid, SIGSTOP);
  count(slot, How::kStoppedAtRandom);
}

void Tormentor::go_on(std::size_t slot) {
  slots_[slot].at_point_since.store(0);
  ::kill(processes_[slot].pid, SIGCONT);
  processes_[slot].continue_at = 0;
  excuse();
}

void Tormentor::excuse(std::uint64_t now) {
  bool stopped = false;
  bool puts = false;
  bool takes = false;
  for (std::size_t slot = 0; slot < processes_.size(); ++slot) {
    const Process& process = processes_[slot];
    const bool alive = process.pid != 0 && !process.killed;
    stopped = stopped || (alive && process.continue_at != 0);
    puts = puts || (alive && cast_[process.role].side == Role::Side::kPuts);
    takes = takes || (alive && cast_[process.role].side == Role::Side::kTakes);
    slots_[slot].own_stops.set(alive && process.continue_at != 0, now);
  }
  state_->clocks[0].set(stopped || !takes, now);
  state_->clocks[1].set(stopped || !puts, now);
  state_->clocks[2].set(stopped, now);
}

void Tormentor::fault() {
  const std::vector<std::size_t> alive = living();
  if (alive.empty()) return;
  if (random_.chance(plan_.stops)) {
    stop(alive[random_.below(alive.size())]);
    return;
  }
  std::vector<std::size_t> victims;
  for (const std::size_t slot : alive) {
    if (may_be_killed(slot)) victims.push_back(slot);
  }
  if (victims.empty()) return;
  const double roll = random_.unit();
  if (roll < 0.01 && victims.size() == alive.size()) {
    for (const std::size_t slot : victims) kill(slot, How::kKilledEverybody);
  } else if (roll < 0.12 && victims.size() > 1) {
    std::size_t many = random_.between(2, victims.size());
    for (std::size_t i = random_.below(victims.size()); many > 0; --many, ++i) {
      kill(victims[i % victims.size()], How::kKilledTogether);
    }
  } else {
    kill(victims[random_.below(victims.size())], How::kKilledAtRandom);
  }
  excuse();
}

void Tormentor::reap() {
  int status = 0;
  while (true) {
    const pid_t pid = ::waitpid(-1, &status, WNOHANG | WUNTRACED);
    if (pid <= 0) return;
    const auto process =
        std::find_if(processes_.begin(), processes_.end(), [&](const Process& p) { return p.pid == pid; });
    if (process == processes_.end()) continue;
    const auto slot = static_cast<std::size_t>(process - processes_.begin());
    if (!WIFSTOPPED(status)) {
      ended(slot, status);
      continue;
    }
    if (process->continue_at != 0 || process->killed) continue;  // by us
    process->continue_at = nanoseconds_now() + random_.between(200, 8000) * 1000;
    excuse(happened_at(slot));
    count(slot, How::kStoppedAtPoint);
    if (process->armed != kNone) ++result_.point_stops[process->armed];
  }
}

// When a process was stopped or killed by its fault point, which may be a while before this process had a
// core to notice it.
std::uint64_t Tormentor::happened_at(std::size_t slot) const {
  const std::uint64_t noted = slots_[slot].at_point_since.load(std::memory_order_acquire);
  return noted != 0 ? noted : nanoseconds_now();
}

void Tormentor::ended(std::size_t slot, int status) {
  Process& process = processes_[slot];
  Slot& record = slots_[slot];
  process.pid = 0;
  process.continue_at = 0;
  const std::uint64_t now = nanoseconds_now();
  excuse(happened_at(slot));
  read_log(slot);
  const bool by_itself = !process.killed;
  const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  if (killed && by_itself && process.armed != kNone) {
    const bool repairing = all_points()[process.armed].repair;
    count(slot, repairing ? How::kKilledRepairing : How::kKilledAtPoint);
    ++result_.point_kills[process.armed];
  } else if (const int what = record.failed.load(std::memory_order_acquire); what != 0) {
    result_.find(static_cast<Finding>(what - 1), 1,
                 std::string(cast_[process.role].name) + ": " + record.failure);
  } else if (!killed && status != 0) {
    result_.find(Finding::kBroken, 1,
                 "a " + std::string(cast_[process.role].name) +
                     (WIFSIGNALED(status) ? " ended by signal " + std::to_string(WTERMSIG(status))
                                          : " exited with " + std::to_string(WEXITSTATUS(status))));
  }
  // An operation that was under way when its process died took at least so long.
  std::uint64_t since = record.op_since.load(std::memory_order_acquire);
  if (since != 0 && record.op_name.load() != nullptr && now > since) {
    const int clock = record.op_clock.load();
    const std::uint64_t excused = state_->clocks[clock].at(now) - record.op_excused.load();
    // It waited for space, and the last was made then.
    if (clock == 0) {
      for (const auto& at : state_->took_at) since = std::clamp(at.load(), since, now);
    }
    if (now - since > excused) record.stalls.add(now - since - excused);
  }
  process.fell = killed;
  scene_.ended(slot, record, killed);
  process.start_at = now + (random_.chance(0.7) ? 0 : random_.below(4 * kMs));
}

void Tormentor::read_log(std::size_t slot) {
  Slot& record = slots_[slot];
  const std::uint64_t end = record.log_end.load(std::memory_order_acquire);
  std::uint64_t from = record.drained.load(std::memory_order_relaxed);
  if (from == end) return;
  std::vector<std::uint64_t> words;
  words.reserve(end - from);
  for (; from != end; ++from) {
    words.push_back(record.log[from % Slot::kLogWords].load(std::memory_order_relaxed));
  }
  record.drained.store(end, std::memory_order_release);
  scene_.logged(slot, words);
}

void Tormentor::tend(std::uint64_t until) {
  while (true) {
    reap();
    std::uint64_t now = nanoseconds_now();
    std::uint64_t next = std::min(until, now + kLongestTend);
    for (std::size_t slot = 0; slot < processes_.size(); ++slot) {
      Process& process = processes_[slot];
      if (process.pid == 0) {
        if (calm_ || hopeless_) continue;
        if (process.start_at <= now) {
          start(slot, kAny);
          excuse();
        } else {
          next = std::min(next, process.start_at);
        }
        continue;
      }
      read_log(slot);
      if (process.continue_at == 0 || process.killed) continue;
      if (process.continue_at <= now) {
        go_on(slot);
      } else {
        next = std::min(next, process.continue_at);
      }
    }
    now = nanoseconds_now();
    if (now >= until || hopeless_) return;
    if (next <= now) continue;
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    const timespec wait{static_cast<time_t>((next - now) / 1'000'000'000),
                        static_cast<long>((next - now) % 1'000'000'000)};
    if (::sigtimedwait(&child, nullptr, &wait) < 0 && errno == EAGAIN) {
      const std::uint64_t woke = nanoseconds_now();
      result_.noise.add(woke > next ? woke - next : 0);
    }
  }
}

void Tormentor::look_for_hangs() {
  const std::uint64_t now = nanoseconds_now();
  for (std::size_t slot = 0; slot < processes_.size(); ++slot) {
    const Slot& record = slots_[slot];
    const std::uint64_t since = record.op_since.load(std::memory_order_acquire);
    const char* name = record.op_name.load();
    if (processes_[slot].pid == 0 || since == 0 || name == nullptr || now < since) continue;
    const std::uint64_t excused = state_->clocks[record.op_clock.load()].at(now) - record.op_excused.load();
    if (now - since < excused + kHungAfter) continue;
    result_.find(Finding::kHung, 1,
                 std::string(cast_[processes_[slot].role].name) + " in " + name + " for " +
                     std::to_string((now - since - excused) / kMs) + " ms, state " +
                     state_of(processes_[slot].pid) + "; " + scene_.described());
    hopeless_ = true;
  }
}

void Tormentor::torment() {
  const std::uint64_t end = nanoseconds_now() + static_cast<std::uint64_t>(plan_.duration.count()) * kMs;
  // Where few may be killed, each must still live long enough to do something.
  double mortals = 0;
  for (std::size_t slot = 0; slot < processes_.size(); ++slot) mortals += may_be_killed(slot) ? 1 : 0;
  const double least_gap_us = scene_.least_life_us() / std::max(1.0, mortals);
  while (!hopeless_) {
    const std::uint64_t now = nanoseconds_now();
    if (now >= end) break;
    const double gap_us = std::max(plan_.mean_gap_us, least_gap_us);
    tend(std::min(end, now + static_cast<std::uint64_t>(random_.exponential(gap_us) * 1000)));
    fault();
    look_for_hangs();
  }
}

}  // namespace gristmill::campaign
