#pragma once

// One shared segment per run: who takes part, how far each is, and how each ended. Whatever watches
// a run (supervisor, learner, `gristmill top`) reads it and disturbs no one.
//
// Single writers: the header's text and its `stop` word: the learner process. A row: the process
// whose row it is, except `restarts`, `how_it_ended` and the reset of a row before a (re)start,
// which are the supervisor's (the row's process is proved dead then). Rows lie on cache lines of
// their own; counters are relaxed atomics: each is exact, a set of them is not a snapshot.

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/deadline.h"
#include "core/event_count.h"
#include "core/process_identity.h"

namespace gristmill {

// Values are stored in shared memory: append only. *Ns are nanoseconds spent.
enum class Counter : std::uint32_t {
  kFrames,         // environment steps
  kEpisodes,       // finished
  kTrajectories,   // put
  kEnvironmentNs,  // in step and reset
  kInferenceNs,    // policy forward and sampling
  kSpaceWaitNs,    // waiting for a place in the queue
  kCopyNs,         // put's copy
  kParametersNs,   // watching and pinning
  kFirstStepNs,    // monotonic clock at the first environment step; 0 before
  kLastStepNs,     // monotonic clock at the last one put
  kVersion,        // parameters in use
  kCount,
};

// Where a process of the run stands.
enum class Phase : std::uint32_t {
  kEmpty = 0,
  kStarting = 1,   // the supervisor has started it
  kDescribed = 2,  // environments are made; description() is set; waits for queue and box
  kRunning = 3,
  kStopped = 4,  // ended as told
  kFailed = 5,   // ended by an error; error() tells
  kFatal = 6,    // ended by an error that a restart would only repeat: the run ends too
};

class RunBoard {
 public:
  static constexpr std::size_t kTextBytes = 16384;  // config
  static constexpr std::size_t kDescriptionBytes = 4096;
  static constexpr std::size_t kErrorBytes = 16384;

  static std::unique_ptr<RunBoard> create(const std::string& name, int rows);
  static std::unique_ptr<RunBoard> attach(const std::string& name, Deadline deadline);
  ~RunBoard();

  const std::string& name() const;
  int rows() const;
  // The process that created it: the one workers must not outlive.
  ProcessIdentity owner() const;

  // Row `index` is seen through this handle, which borrows the board.
  class Row {
   public:
    // The row's process.
    void enter();                                // identity = self, heartbeat = now
    void beat();                                 // heartbeat = now; relaxed, costs a clock read
    void add(Counter counter, std::uint64_t n);  // single writer: load + store, no lock prefix
    void set(Counter counter, std::uint64_t value);
    void set_phase(Phase phase);                  // release; wakes who awaits a change
    void set_description(std::string_view json);  // before set_phase(kDescribed); truncation throws
    void set_error(std::string_view text);        // before set_phase(kFailed); long text keeps its end

    // The supervisor.
    void prepare(int incarnation);  // clears the row, phase = kStarting

    // Anyone.
    std::uint64_t get(Counter counter) const;
    Phase phase() const;              // acquire
    bool reached(Phase phase) const;  // was in it since prepare()
    ProcessIdentity identity() const;
    int incarnation() const;                      // 0 at first, +1 at each restart
    std::chrono::nanoseconds since_beat() const;  // time since the last heartbeat
    std::chrono::steady_clock::time_point last_beat() const;
    std::string description() const;
    std::string error() const;

   private:
    friend class RunBoard;
    struct Shared;
    RunBoard* board_ = nullptr;
    Shared* shared_ = nullptr;
  };
  Row row(int index);

  // The learner process, before workers start: the resolved configuration, as YAML.
  void set_config(std::string_view yaml);
  std::string config() const;

  // The learner process: queue and box exist now, workers may attach. / Workers wait for it.
  void announce_ready();
  bool await_ready(Deadline deadline);  // false: timed out or stopped
  // Anyone of the run: an orderly end. Wakes who waits on the board.
  void request_stop();
  bool stop_requested() const;
  // Waits until any row's phase changed since `seen` (0 at first), or stop; returns the new count.
  std::uint32_t await_change(std::uint32_t seen, Deadline deadline);
  std::uint32_t changes() const;

  void unlink() noexcept;

 private:
  struct Impl;
  explicit RunBoard(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gristmill
