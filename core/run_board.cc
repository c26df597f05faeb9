#include "core/run_board.h"

#include <algorithm>
#include <bit>
#include <new>
#include <stdexcept>
#include <utility>

#include "core/segment.h"
#include "core/shared_text.h"

namespace gristmill {

namespace {

constexpr int kMaxRows = 4096;
constexpr std::size_t kPublications = 16;

// Spans that each process's ring holds: all rings together take 4 MiB, unless there are very many.
std::size_t spans_of_a_ring(std::uint64_t rings) {
  return std::clamp<std::size_t>(std::bit_floor((std::size_t{1} << 17) / rings), 256, 4096);
}

std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

// The end of `text`, from a UTF-8 character's start on, under a line that says what is missing: the
// last lines of a traceback tell most.
std::string keep_end(std::string_view text, std::size_t limit) {
  if (text.size() <= limit) return std::string(text);
  const std::string notice = "[the first of " + std::to_string(text.size()) + " bytes are cut]\n";
  std::size_t begin = text.size() - (limit - notice.size());
  for (int i = 0; i < 3 && begin < text.size() && (text[begin] & 0xc0) == 0x80; ++i) ++begin;
  return notice + std::string(text.substr(begin));
}

struct Control {
  std::uint64_t rows = 0;  // written by the creator before READY, and never again
  // Words that are rarely written and mostly read.
  alignas(64) std::atomic<std::uint32_t> ready{0};    // 0 or 1; the learner process
  std::atomic<std::uint32_t> stop{0};                 // 0 or 1; anyone, set once
  alignas(64) std::atomic<std::uint32_t> changes{0};  // any row's phase; read-modify-write
  EventCount changed;                                 // ready, stop and changes
  alignas(64) std::atomic<std::uint32_t> tracing{0};  // 0 or 1; a profiler
  // The learner process. Word pairs: `version` is 0 while `ns` is replaced.
  struct Publication {
    std::atomic<std::uint64_t> version{0};
    std::atomic<std::uint64_t> ns{0};
  };
  alignas(64) std::array<Publication, kPublications> publications;
  alignas(64) SharedText<RunBoard::kTextBytes> config;
};

}  // namespace

// Lines: the supervisor's, the process's, its counters and histograms, its texts.
struct RunBoard::Row::Shared {
  alignas(64) std::atomic<std::int32_t> incarnation{0};
  alignas(64) std::atomic<std::uint64_t> identity{0};  // ProcessIdentity::pack()
  std::atomic<std::uint64_t> heartbeat_ns{0};          // monotonic clock; 0: never
  std::atomic<std::uint32_t> phase{0};
  std::atomic<std::uint32_t> reached{0};  // bit p: was in phase p
  alignas(64) std::array<std::atomic<std::uint64_t>, kCounterCount> counters{};
  alignas(64) std::array<LogHistogram, kMeasureCount> histograms;
  alignas(64) std::atomic<std::uint64_t> spans_written{0};  // never reset: a successor goes on
  alignas(64) SharedText<RunBoard::kDescriptionBytes> description;
  alignas(64) SharedText<RunBoard::kErrorBytes> error;
};

struct RunBoard::Impl {
  // Control, a row for each worker and one for the learner, a ring for each of them.
  static std::size_t payload_bytes(std::uint64_t rows) {
    return sizeof(Control) +
           (rows + 1) * (sizeof(Row::Shared) + spans_of_a_ring(rows + 1) * sizeof(TraceSlot));
  }

  static std::uint64_t layout_hash() {
    const std::array<std::uint64_t, 10> layout = {sizeof(Control),
                                                  offsetof(Control, changes),
                                                  offsetof(Control, config),
                                                  sizeof(Row::Shared),
                                                  sizeof(TraceSlot),
                                                  kCounterCount,
                                                  kMeasureCount,
                                                  kStageCount,
                                                  kDescriptionBytes,
                                                  kErrorBytes};
    return hash_bytes(layout.data(), sizeof layout);
  }

  explicit Impl(Segment the_segment) : segment(std::move(the_segment)) {
    control = std::launder(reinterpret_cast<Control*>(segment.payload()));
    shared_rows = std::launder(reinterpret_cast<Row::Shared*>(segment.payload() + sizeof(Control)));
    rows = static_cast<int>(control->rows);
    const auto rings = static_cast<std::size_t>(rows) + 1;
    slots = std::launder(reinterpret_cast<TraceSlot*>(reinterpret_cast<std::byte*>(shared_rows + rings)));
    ring_spans = spans_of_a_ring(rings);
  }

  void announce_change() {
    control->changes.fetch_add(1, std::memory_order_release);
    control->changed.notify_all();
  }

  Row row(RunBoard* board, int index) const {
    Row row;
    row.board_ = board;
    row.shared_ = shared_rows + index;
    row.ring_ = TraceRing(&row.shared_->spans_written, slots + static_cast<std::size_t>(index) * ring_spans,
                          ring_spans);
    return row;
  }

  bool stopped() const { return control->stop.load(std::memory_order_acquire) != 0; }

  Segment segment;
  Control* control = nullptr;
  Row::Shared* shared_rows = nullptr;
  TraceSlot* slots = nullptr;
  std::size_t ring_spans = 0;
  int rows = 0;
};

RunBoard::RunBoard(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RunBoard::~RunBoard() = default;

std::unique_ptr<RunBoard> RunBoard::create(const std::string& name, int rows) {
  if (rows < 1 || rows > kMaxRows) {
    throw std::invalid_argument("run board '" + name + "': " + std::to_string(rows) +
                                " rows, expected 1 to " + std::to_string(kMaxRows));
  }
  const auto count = static_cast<std::uint64_t>(rows);
  Segment segment =
      Segment::create(name, SegmentKind::kRunBoard, Impl::layout_hash(), Impl::payload_bytes(count));
  auto* control = new (segment.payload()) Control;
  control->rows = count;
  for (std::uint64_t i = 0; i <= count; ++i) {
    new (segment.payload() + sizeof(Control) + i * sizeof(Row::Shared)) Row::Shared;
  }
  // The rings are zeros, which is what empty slots are.
  segment.mark_ready();
  return std::unique_ptr<RunBoard>(new RunBoard(std::make_unique<Impl>(std::move(segment))));
}

std::unique_ptr<RunBoard> RunBoard::attach(const std::string& name, Deadline deadline,
                                           Segment::Access access) {
  Segment segment = Segment::attach(name, SegmentKind::kRunBoard, Impl::layout_hash(), deadline, access);
  const auto damaged = [&](const std::string& why) {
    return SegmentError(SegmentError::Reason::kCorrupt, "run board '" + name + "' is damaged: " + why);
  };
  if (segment.payload_bytes() < sizeof(Control)) {
    throw damaged(std::to_string(segment.payload_bytes()) + " bytes of payload, expected at least " +
                  std::to_string(sizeof(Control)));
  }
  const std::uint64_t rows = std::launder(reinterpret_cast<const Control*>(segment.payload()))->rows;
  if (rows < 1 || rows > kMaxRows) throw damaged("it claims " + std::to_string(rows) + " rows");
  if (segment.payload_bytes() != Impl::payload_bytes(rows)) {
    throw damaged(std::to_string(rows) + " rows need " + std::to_string(Impl::payload_bytes(rows)) +
                  " bytes, but it has " + std::to_string(segment.payload_bytes()));
  }
  return std::unique_ptr<RunBoard>(new RunBoard(std::make_unique<Impl>(std::move(segment))));
}

const std::string& RunBoard::name() const { return impl_->segment.name(); }
int RunBoard::rows() const { return impl_->rows; }
ProcessIdentity RunBoard::owner() const { return impl_->segment.owner(); }
void RunBoard::unlink() noexcept { impl_->segment.unlink(); }

RunBoard::Row RunBoard::row(int index) {
  if (index < 0 || index >= impl_->rows) {
    throw std::out_of_range("run board '" + name() + "': row " + std::to_string(index) + ", expected 0 to " +
                            std::to_string(impl_->rows - 1));
  }
  return impl_->row(this, index);
}

RunBoard::Row RunBoard::learner() { return impl_->row(this, impl_->rows); }

void RunBoard::Row::enter() {
  beat();
  shared_->identity.store(ProcessIdentity::self().pack(), std::memory_order_release);
}

void RunBoard::Row::beat() { beat(now_ns()); }
void RunBoard::Row::beat(std::uint64_t now) { shared_->heartbeat_ns.store(now, std::memory_order_relaxed); }

void RunBoard::Row::add(Counter counter, std::uint64_t n) {
  auto& value = shared_->counters[static_cast<std::size_t>(counter)];
  value.store(value.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}

void RunBoard::Row::set(Counter counter, std::uint64_t value) {
  shared_->counters[static_cast<std::size_t>(counter)].store(value, std::memory_order_relaxed);
}

void RunBoard::Row::record(Measure measure, std::uint64_t value, std::uint64_t times) {
  shared_->histograms[static_cast<std::size_t>(measure)].record(value, times);
}

void RunBoard::Row::spend(Measure stage, std::uint64_t ns) {
  add(counter_of(stage), ns);
  record(stage, ns);
}

void RunBoard::Row::trace(const TraceSpan& span) { ring_.push(span); }

void RunBoard::Row::set_phase(Phase phase) {
  const std::uint32_t reached = shared_->reached.load(std::memory_order_relaxed);
  shared_->reached.store(reached | 1u << static_cast<std::uint32_t>(phase), std::memory_order_relaxed);
  // Pairs with phase(): description, error and `reached` are seen by whoever sees the phase.
  shared_->phase.store(static_cast<std::uint32_t>(phase), std::memory_order_release);
  board_->impl_->announce_change();
}

void RunBoard::Row::set_description(std::string_view json) {
  if (shared_->description.set(json)) return;
  throw std::length_error("run board '" + board_->name() + "': a description of " +
                          std::to_string(json.size()) + " bytes, expected at most " +
                          std::to_string(kDescriptionBytes));
}

void RunBoard::Row::set_error(std::string_view text) { shared_->error.set(keep_end(text, kErrorBytes)); }

void RunBoard::Row::prepare(int incarnation) {
  shared_->identity.store(0, std::memory_order_relaxed);
  for (auto& counter : shared_->counters) counter.store(0, std::memory_order_relaxed);
  for (LogHistogram& histogram : shared_->histograms) histogram.clear();
  shared_->description.set({});
  shared_->error.set({});
  shared_->incarnation.store(incarnation, std::memory_order_relaxed);
  shared_->reached.store(0, std::memory_order_relaxed);
  beat();
  set_phase(Phase::kStarting);
}

std::uint64_t RunBoard::Row::get(Counter counter) const {
  return shared_->counters[static_cast<std::size_t>(counter)].load(std::memory_order_relaxed);
}

LogHistogram::Counts RunBoard::Row::histogram(Measure measure) const {
  return shared_->histograms[static_cast<std::size_t>(measure)].counts();
}

Phase RunBoard::Row::phase() const {
  const std::uint32_t phase = shared_->phase.load(std::memory_order_acquire);
  return phase > static_cast<std::uint32_t>(Phase::kFatal) ? Phase::kEmpty : static_cast<Phase>(phase);
}

bool RunBoard::Row::reached(Phase phase) const {
  return (shared_->reached.load(std::memory_order_relaxed) >> static_cast<std::uint32_t>(phase) & 1u) != 0;
}

ProcessIdentity RunBoard::Row::identity() const {
  return ProcessIdentity::unpack(shared_->identity.load(std::memory_order_acquire));
}

int RunBoard::Row::incarnation() const { return shared_->incarnation.load(std::memory_order_relaxed); }

std::chrono::nanoseconds RunBoard::Row::since_beat() const {
  const std::uint64_t beat = shared_->heartbeat_ns.load(std::memory_order_relaxed);
  const std::uint64_t now = now_ns();
  // A beat on another core may come between the two reads.
  return std::chrono::nanoseconds(beat >= now ? 0 : now - beat);
}

std::chrono::steady_clock::time_point RunBoard::Row::last_beat() const {
  return std::chrono::steady_clock::time_point(
      std::chrono::nanoseconds(shared_->heartbeat_ns.load(std::memory_order_relaxed)));
}

std::string RunBoard::Row::description() const { return shared_->description.get(); }
std::string RunBoard::Row::error() const { return shared_->error.get(); }

void RunBoard::set_config(std::string_view yaml) {
  if (impl_->control->config.set(yaml)) return;
  throw std::length_error("run board '" + name() + "': a configuration of " + std::to_string(yaml.size()) +
                          " bytes, expected at most " + std::to_string(kTextBytes));
}

std::string RunBoard::config() const { return impl_->control->config.get(); }

void RunBoard::announce_ready() {
  impl_->control->ready.store(1, std::memory_order_release);
  impl_->control->changed.notify_all();
}

bool RunBoard::await_ready(Deadline deadline) {
  const auto ready = [this] { return impl_->control->ready.load(std::memory_order_acquire) != 0; };
  impl_->control->changed.await(deadline, [&] { return ready() || impl_->stopped(); });
  return ready() && !impl_->stopped();
}

void RunBoard::request_stop() {
  impl_->control->stop.store(1, std::memory_order_release);
  impl_->control->changed.notify_all();
}

bool RunBoard::stop_requested() const { return impl_->stopped(); }

void RunBoard::set_tracing(bool on) { impl_->control->tracing.store(on ? 1 : 0, std::memory_order_relaxed); }
bool RunBoard::tracing() const { return impl_->control->tracing.load(std::memory_order_relaxed) != 0; }

void RunBoard::note_publication(std::uint64_t version, std::uint64_t now) {
  Control::Publication& slot = impl_->control->publications[version % kPublications];
  slot.version.store(0, std::memory_order_relaxed);
  slot.ns.store(now, std::memory_order_release);           // not before the 0
  slot.version.store(version, std::memory_order_release);  // pairs with published_at()
}

std::uint64_t RunBoard::published_at(std::uint64_t version) const {
  const Control::Publication& slot = impl_->control->publications[version % kPublications];
  if (slot.version.load(std::memory_order_acquire) != version) return 0;
  const std::uint64_t ns = slot.ns.load(std::memory_order_acquire);
  return slot.version.load(std::memory_order_relaxed) == version ? ns : 0;
}

std::uint32_t RunBoard::changes() const { return impl_->control->changes.load(std::memory_order_acquire); }

std::uint32_t RunBoard::await_change(std::uint32_t seen, Deadline deadline) {
  impl_->control->changed.await(deadline, [&] { return changes() != seen || impl_->stopped(); });
  return changes();
}

}  // namespace gristmill
