#pragma once

// Who a process is, in a way that survives pid reuse: pid + start time.

#include <atomic>
#include <cstdint>

namespace gristmill {

// pid 0 means nobody. A process keeps its identity when it calls exec.
struct ProcessIdentity {
  std::int64_t pid = 0;
  std::uint64_t start_time = 0;  // clock ticks since boot, field 22 of /proc/<pid>/stat

  // The calling process. Cached (one load), and refreshed in a forked child. Any thread. Throws
  // std::runtime_error when /proc is not mounted, or is that of another pid namespace.
  static ProcessIdentity self();

  // self().pack(), at the cost of one load where the kernel can tell a forked child.
  static std::uint64_t self_packed() {
    const std::uint64_t word = cached_.load(std::memory_order_relaxed)->load(std::memory_order_relaxed);
    return word != 0 ? word : self().pack();
  }

  // In one 64-bit word (22 bits of pid, 42 of start time), so that owning something in shared
  // memory is one atomic store or compare-exchange. Nobody packs to 0.
  std::uint64_t pack() const;
  static ProcessIdentity unpack(std::uint64_t word);

  // True only when it is certain that this process has ended: no such pid, a zombie, or another
  // start time under this pid. Nobody (pid 0), and a process that cannot be inspected, are never
  // proved dead. Only meaningful within one pid namespace: Segment refuses to attach across them.
  // Does not block; a few system calls.
  bool proved_dead() const;

  // True when there is no such process, or only its zombie. A hint, for what is not worth a start time: false
  // may be said of another process that has the pid by now. A few system calls.
  static bool is_gone(std::int64_t pid);

  bool operator==(const ProcessIdentity&) const = default;

 private:
  // A word that every fork's child finds zeroed, once self() has been called; a zero until then.
  static std::atomic<const std::atomic<std::uint64_t>*> cached_;
};

// Equal in two processes exactly when they can judge each other's identity: the same pid namespace
// and the same clock (time namespace). Never 0. Throws std::runtime_error when /proc is not mounted.
std::uint64_t identity_namespace();

}  // namespace gristmill
