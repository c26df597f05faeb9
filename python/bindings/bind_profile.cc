// What the profiler and `gristmill top` read from a run's board: histograms and spans.

#include <pybind11/stl.h>

#include <array>
#include <bit>
#include <string>
#include <vector>

#include "core/run_board.h"
#include "python/bindings/bindings.h"
#include "python/bindings/waiting.h"

namespace gristmill::python {
namespace {

// None: the learner's.
RunBoard::Row row_of(RunBoard& board, std::optional<int> index) {
  if (!index) return board.learner();
  if (*index < 0 || *index >= board.rows()) {
    throw py::index_error("row " + std::to_string(*index) + " of a board with " +
                          std::to_string(board.rows()) + " rows");
  }
  return board.row(*index);
}

// {measure: counts of its buckets, as uint64 in native order}; measures that have none are left out.
py::dict histograms(RunBoard& board, std::optional<int> index) {
  const RunBoard::Row row = row_of(board, index);
  py::dict out;
  for (std::size_t m = 0; m < kMeasureCount; ++m) {
    const LogHistogram::Counts counts = row.histogram(static_cast<Measure>(m));
    if (counts == LogHistogram::Counts{}) continue;
    out[kMeasureNames[m]] = py::bytes(reinterpret_cast<const char*>(counts.data()), sizeof counts);
  }
  return out;
}

// (where the next call goes on, spans lost, uint64 [n, 4] as bytes: begin, duration, stage, argument).
py::tuple spans(RunBoard& board, std::optional<int> index, std::uint64_t since) {
  const TraceRing::Read read = row_of(board, index).spans().read(since);
  std::vector<std::array<std::uint64_t, 4>> rows;
  rows.reserve(read.spans.size());
  for (const TraceSpan& span : read.spans) {
    rows.push_back({span.begin_ns, span.duration_ns, static_cast<std::uint64_t>(span.stage), span.argument});
  }
  return py::make_tuple(read.next, read.lost,
                        py::bytes(reinterpret_cast<const char*>(rows.data()), rows.size() * sizeof rows[0]));
}

}  // namespace

void bind_profile(py::module_& module) {
  module.def(
      "watch_board",
      [](const std::string& name, std::optional<double> timeout) {
        const Deadline deadline = deadline_of(timeout);
        const py::gil_scoped_release release;
        return RunBoard::attach(name, deadline, Segment::Access::kReadOnly);
      },
      py::arg("name"), py::arg("timeout") = 1.0,
      "The board, mapped for reading alone: whatever would write to it ends the process. Raises "
      "SegmentError.");
  module.def("board_histograms", &histograms, py::arg("board"), py::arg("row"),
             "{measure: its buckets' counts, as the bytes of uint64} of a worker's row, or the learner's "
             "(None). Those without a count are left out.");
  module.def("board_spans", &spans, py::arg("board"), py::arg("row"), py::arg("since"),
             "(next, lost, spans): the trace spans of a row from number `since` on, as the bytes of uint64 "
             "[n, 4]: begin and duration in ns, stage, argument.");
  module.def(
      "learner_row",
      [](RunBoard& board) {
        const RunBoard::Row row = board.learner();
        py::dict out = row_to_python(row);
        out["mean_return"] = std::bit_cast<double>(row.get(Counter::kMeanReturn));
        return out;
      },
      py::arg("board"),
      "As RunBoard.row() of the learner's; mean_return is 0 before the first episode's end.");
  module.def("set_tracing", &RunBoard::set_tracing, py::arg("board"), py::arg("on"),
             "Whether every process of the run traces spans from now on.");
  module.def(
      "histogram_bounds",
      [] {
        std::vector<std::uint64_t> bounds(LogHistogram::kBuckets);
        for (std::size_t i = 0; i < bounds.size(); ++i) bounds[i] = LogHistogram::lower_bound(i);
        return bounds;
      },
      "The least value in each bucket of a histogram; the last bucket takes whatever is larger.");
  module.def(
      "stages",
      [](bool learner) {
        const auto begin = kMeasureNames.begin() + (learner ? kWorkerStages : 0);
        return std::vector<std::string>(begin,
                                        kMeasureNames.begin() + (learner ? kStageCount : kWorkerStages));
      },
      py::arg("learner"), "The stages of the learner's time, or of a worker's, in order.");
}

}  // namespace gristmill::python
