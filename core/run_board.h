#pragma once

// One shared segment per run: who takes part, how far each is, where its time goes, and how each ended.
// Whatever watches a run (supervisor, learner, `gristmill top`, profiler) reads it and disturbs no one.
//
// Single writers: the header's text and publications: the learner process; `stop`: anyone, once; `tracing`:
// a profiler. A row: the process whose row it is, except `restarts`, `how_it_ended` and the reset of a row
// before a (re)start, which are the supervisor's (the row's process is proved dead then). Rows lie on cache
// lines of their own; counters are relaxed atomics: each is exact, a set of them is not a snapshot.

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/deadline.h"
#include "core/event_count.h"
#include "core/log_histogram.h"
#include "core/measures.h"
#include "core/process_identity.h"
#include "core/segment.h"
#include "core/trace_ring.h"

namespace gristmill {

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
  // kReadOnly: for who only looks; what stores or waits must not be called then.
  static std::unique_ptr<RunBoard> attach(const std::string& name, Deadline deadline,
                                          Segment::Access access = Segment::Access::kReadWrite);
  ~RunBoard();

  const std::string& name() const;
  int rows() const;  // of workers
  // The process that created it: the one workers must not outlive.
  ProcessIdentity owner() const;

  // Row `index` is seen through this handle, which borrows the board.
  class Row {
   public:
    // The row's process.
    void enter();                                // identity = self, heartbeat = now
    void beat();                                 // heartbeat = now; relaxed, costs a clock read
    void beat(std::uint64_t now_ns);             // the same at a time just read from the monotonic clock
    void add(Counter counter, std::uint64_t n);  // single writer: load + store, no lock prefix
    void set(Counter counter, std::uint64_t value);
    void record(Measure measure, std::uint64_t value, std::uint64_t times = 1);  // into its histogram
    void spend(Measure stage, std::uint64_t ns);  // record() and add() to the stage's counter
    void trace(const TraceSpan& span);
    void set_phase(Phase phase);                  // release; wakes who awaits a change
    void set_description(std::string_view json);  // before set_phase(kDescribed); truncation throws
    void set_error(std::string_view text);        // before set_phase(kFailed); long text keeps its end

    // The supervisor.
    void prepare(int incarnation);  // clears the row, phase = kStarting

    // Anyone.
    std::uint64_t get(Counter counter) const;
    LogHistogram::Counts histogram(Measure measure) const;
    const TraceRing& spans() const { return ring_; }
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
    TraceRing ring_;
  };
  Row row(int index);  // a worker's
  Row learner();       // of the process that takes the trajectories

  // The learner process, before workers start: the resolved configuration, as YAML.
  void set_config(std::string_view yaml);
  std::string config() const;

  // The learner process: queue and box exist now, workers may attach. / Workers wait for it.
  void announce_ready();
  bool await_ready(Deadline deadline);  // false: timed out or stopped
  // Anyone of the run: an orderly end. Wakes who waits on the board.
  void request_stop();
  bool stop_requested() const;
  // A profiler: whether spans are traced from now on. / Every process, before it traces one.
  void set_tracing(bool on);
  bool tracing() const;

  // The learner process, before it publishes: when. / Anyone; 0 when it is not known, or too long ago.
  void note_publication(std::uint64_t version, std::uint64_t now_ns);
  std::uint64_t published_at(std::uint64_t version) const;

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
