// What the workers of gm.Rollouts log and print, for the process whose loop it is: a run without a folder has
// no log.txt (rollout/run_log.h).

#include <memory>
#include <string>
#include <utility>

#include "core/message_buffer.h"
#include "core/message_queue.h"
#include "python/bindings/bindings.h"
#include "rollout/run_log.h"

namespace gristmill::python {
namespace {

class WorkerLogs {
 public:
  explicit WorkerLogs(const std::string& board) {
    MessageQueueOptions options;
    options.max_size_bytes = RunLog::kQueueBytes;
    options.overflow = Overflow::kDropOldest;
    queue_ = MessageQueue::create(log_name(board), options);
  }

  py::list take() {
    py::list lines;
    if (queue_->size() == 0) return lines;
    MessageBuffer records;
    if (queue_->get_many(1'000'000, RunLog::kAtOnce, records, Deadline::now()) !=
        MessageQueue::Outcome::kOk) {
      return lines;
    }
    for (std::size_t i = 0; i < records.size(); ++i) {
      const auto record = decode_record(records[i]);
      if (record) lines.append(py::make_tuple(record->worker, record->level, record->text));
    }
    return lines;
  }

  std::uint64_t dropped() const { return queue_->statistics().dropped; }
  void unlink() noexcept { queue_->unlink(); }

 private:
  std::unique_ptr<MessageQueue> queue_;
};

}  // namespace

void bind_worker_logs(py::module_& module) {
  py::class_<WorkerLogs>(
      module, "WorkerLogs",
      "The log of a run whose board has this name, where worker_log.install() finds it. It "
      "drops its oldest lines when it is full. Raises SegmentError.")
      .def(py::init<const std::string&>(), py::arg("board"))
      .def("take", &WorkerLogs::take,
           "What was said since the last call, 32 KiB of it at most: [(worker, level as in logging, text)], "
           "printable. Never waits.")
      .def_property_readonly("dropped", &WorkerLogs::dropped, "Lines that gave way to newer ones.")
      .def("unlink", &WorkerLogs::unlink, "Removes the name.");
}

}  // namespace gristmill::python
