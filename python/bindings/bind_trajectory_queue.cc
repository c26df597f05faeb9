#include <pybind11/stl.h>

#include <atomic>

#include "core/segment.h"
#include "core/trace_ring.h"
#include "core/trajectory_queue.h"
#include "python/bindings/arrays.h"
#include "python/bindings/bindings.h"
#include "python/bindings/errors.h"
#include "python/bindings/waiting.h"

namespace gristmill::python {
namespace {

// The segment was there when it was pickled.
constexpr std::chrono::seconds kAttach{5};

using Outcome = TrajectoryQueue::Outcome;

// A batch and the queue it lies in. Members end in reverse order: the places are released while the
// queue is still mapped.
struct PyBatch {
  py::object queue;
  TrajectoryQueue::Batch batch;

  const FieldSpecs& specs() const { return queue.cast<const TrajectoryQueue&>().spec(); }
};

[[noreturn]] void raise(Outcome outcome, const TrajectoryQueue& queue, const std::string& timed_out) {
  if (outcome == Outcome::kTimedOut) raise_timeout(timed_out);
  if (outcome == Outcome::kClosed) raise_closed("queue " + queue.name() + " is closed");
  throw std::runtime_error("queue " + queue.name() + " is damaged beyond repair");
}

std::int64_t put_many(TrajectoryQueue& queue, const py::dict& values, std::optional<double> timeout_s,
                      bool many) {
  const Deadline deadline = deadline_of(timeout_s);
  FieldArrays fields = read_fields(queue.spec(), values, many);
  if (fields.count == 0) return 0;
  std::int64_t put = 0;
  const auto result = wait_in_slices(
      deadline,
      [&](Deadline slice) {
        auto part = queue.put_many(fields.pointers, fields.count - put, slice);
        put += part.put;
        for (std::size_t f = 0; f < fields.pointers.size(); ++f) {
          fields.pointers[f] += static_cast<std::size_t>(part.put) * queue.spec()[f].bytes();
        }
        return part;
      },
      [&](const TrajectoryQueue::PutResult& part) {
        return part.outcome != Outcome::kTimedOut || put == fields.count;
      });
  if (put == 0) raise(result.outcome, queue, "queue " + queue.name() + " stayed full");
  return put;
}

// (how many went in, ns waited for space, trace_run() of the places): what a worker's loop charges its time
// with. A time-out is no error: the caller beats its heart and comes again.
py::tuple put_part(TrajectoryQueue& queue, const py::dict& values, double timeout_s) {
  FieldArrays fields = read_fields(queue.spec(), values, true);
  TrajectoryQueue::PutResult part;
  {
    const py::gil_scoped_release release;
    part = queue.put_many(fields.pointers, fields.count, deadline_of(timeout_s));
  }
  if (part.put == 0 && fields.count > 0 && part.outcome != Outcome::kTimedOut) raise(part.outcome, queue, "");
  return py::make_tuple(part.put, part.waited.count(),
                        trace_run(part.run_begin, static_cast<std::uint64_t>(part.run_count)));
}

PyBatch get_many(const py::object& self, std::int64_t n, std::optional<double> timeout_s) {
  auto& queue = self.cast<TrajectoryQueue&>();
  auto result = wait_in_slices(
      deadline_of(timeout_s), [&](Deadline slice) { return queue.get_many(n, slice); },
      [](const TrajectoryQueue::GetResult& got) { return got.outcome != Outcome::kTimedOut; });
  if (result.outcome != Outcome::kOk) {
    raise(result.outcome, queue,
          "queue " + queue.name() + " holds " + std::to_string(queue.size()) + " of the " +
              std::to_string(n) + " trajectories asked for");
  }
  return {self, std::move(result.batch)};
}

py::array batch_field(const py::object& self, const std::string& name) {
  auto& batch = self.cast<PyBatch&>();
  const auto& specs = batch.specs();
  const std::size_t index = index_of(specs, name);
  if (batch.batch.size() == 0) throw py::value_error("the batch is released");
  return view_of(specs[index], batch.batch.field(index), batch.batch.size(), self, true);
}

py::object batch_tensor(const py::object& self, const std::string& name) {
  const auto& specs = self.cast<const PyBatch&>().specs();
  const std::string dtype(dtype_name(specs[index_of(specs, name)].dtype));
  return py::module_::import("gristmill._tensors").attr("over")(batch_field(self, name), dtype);
}

void bind_batch(py::module_& module) {
  py::class_<PyBatch>(
      module, "Batch",
      "n consecutive trajectories, in place: batch['rewards'] is a NumPy array [n, …] that looks into "
      "the queue.\n\nThe places are free again after release(), after the `with` block, or when the "
      "batch and all its arrays are gone; arrays must not be used after an explicit release.")
      .def("__len__", [](const PyBatch& self) { return self.batch.size(); })
      .def_property_readonly(
          "position", [](const PyBatch& self) { return self.batch.position(); },
          "Of its first trajectory, counting from the queue's beginning.")
      .def("__getitem__", &batch_field, py::arg("field"))
      .def(
          "tensor", &batch_tensor, py::arg("field"),
          "The field as a torch tensor over the same memory. (Its array speaks DLPack, for other libraries.)")
      .def(
          "tensors",
          [](const py::object& self) {
            py::dict tensors;
            for (const auto& spec : self.cast<const PyBatch&>().specs()) {
              tensors[py::str(spec.name)] = batch_tensor(self, spec.name);
            }
            return tensors;
          },
          "Every field as a torch tensor.")
      .def(
          "keys",
          [](const PyBatch& self) {
            std::vector<std::string> names;
            for (const auto& spec : self.specs()) names.push_back(spec.name);
            return names;
          },
          "The fields' names, in the queue's order.")
      .def(
          "release", [](PyBatch& self) { self.batch.release(); }, "Frees the places. Idempotent.")
      .def("__enter__", [](py::object self) { return self; })
      .def("__exit__", [](PyBatch& self, const py::args&) { self.batch.release(); });
}

}  // namespace

void bind_trajectory_queue(py::module_& module) {
  module.def(
      "checked_fields", [](const py::dict& fields) { return specs_to_python(specs_from_python(fields)); },
      py::arg("fields"),
      "{name: (dtype name, shape)} as a queue would hold them. Raises TypeError, ValueError.");
  bind_batch(module);
  py::class_<TrajectoryQueueStatistics>(module, "TrajectoryQueueStatistics",
                                        "Counts since the queue was created, over all its processes.")
      .def_readonly("puts", &TrajectoryQueueStatistics::puts, "Trajectories committed.")
      .def_readonly("gets", &TrajectoryQueueStatistics::gets, "Trajectories released by the consumer.")
      .def_readonly("abandoned", &TrajectoryQueueStatistics::abandoned, "Places whose claimant died.")
      .def_readonly("refilled", &TrajectoryQueueStatistics::refilled, "Abandoned places filled again.")
      .def_readonly("put_waits", &TrajectoryQueueStatistics::put_waits, "Puts that found the queue full.")
      .def_readonly("get_waits", &TrajectoryQueueStatistics::get_waits, "Gets that found too few.")
      .def_readonly("owner_deaths", &TrajectoryQueueStatistics::owner_deaths,
                    "Processes that died holding the lock.");

  py::class_<TrajectoryQueue>(
      module, "TrajectoryQueue",
      "A FIFO of fixed-schema trajectories in shared memory: many producers, one consumer.\n\nTimeouts are "
      "in "
      "seconds; None waits for ever. Waiting frees the GIL, and Ctrl-C ends it. Pickling one attaches to it "
      "at the other end.")
      .def(py::init([](const py::dict& fields, std::int64_t capacity) {
             static std::atomic<int> made{0};
             const std::string run = "trajectories-" + std::to_string(++made);
             return TrajectoryQueue::create(segment_name(run, "queue"), specs_from_python(fields), capacity);
           }),
           py::arg("fields"), py::arg("capacity"), "As create(), under a name of its own choosing.")
      .def_static(
          "create",
          [](const std::string& name, const py::dict& fields, std::int64_t capacity) {
            return TrajectoryQueue::create(name, specs_from_python(fields), capacity);
          },
          py::arg("name"), py::arg("fields"), py::arg("capacity"),
          "Creates the segment `name` (see segment_name). fields: {name: (dtype, shape)} of one trajectory; "
          "capacity: trajectories. Raises SegmentError, ValueError.")
      .def_static(
          "attach",
          [](const std::string& name, std::optional<double> timeout) {
            const Deadline deadline = deadline_of(timeout);
            py::gil_scoped_release release;
            return TrajectoryQueue::attach(name, deadline);
          },
          py::arg("name"), py::arg("timeout") = 5.0, "Attaches to an existing one. Raises SegmentError.")
      .def_static(
          "bytes_needed",
          [](const py::dict& fields, std::int64_t capacity) {
            return TrajectoryQueue::bytes_needed(specs_from_python(fields), capacity);
          },
          py::arg("fields"), py::arg("capacity"), "Bytes of shared memory that create() would take.")
      .def_property_readonly("name", &TrajectoryQueue::name, "Of its segment.")
      .def_property_readonly("capacity", &TrajectoryQueue::capacity, "In trajectories.")
      .def_property_readonly(
          "fields", [](const TrajectoryQueue& self) { return specs_to_python(self.spec()); },
          "{name: (dtype, shape)} of one trajectory.")
      .def(
          "put",
          [](TrajectoryQueue& self, const py::dict& fields, std::optional<double> timeout) {
            put_many(self, fields, timeout, false);
          },
          py::arg("fields"), py::arg("timeout") = py::none(),
          "Copies one trajectory in, {name: array or tensor [shape…]}. Raises TimeoutError when the queue "
          "stays full, "
          "QueueClosed.")
      .def(
          "put_many",
          [](TrajectoryQueue& self, const py::dict& fields, std::optional<double> timeout) {
            return put_many(self, fields, timeout, true);
          },
          py::arg("fields"), py::arg("timeout") = py::none(),
          "Copies n trajectories in, {name: array [n, shape…]}, with one claim where there is space. Returns "
          "how many went in, from the front: fewer than n after the time-out or a close. Raises TimeoutError "
          "or "
          "QueueClosed when none did.")
      .def("put_part", &put_part, py::arg("fields"), py::arg("timeout"),
           "put_many() for a worker's loop: (how many went in, ns waited for space, their places as a trace "
           "span's argument). After the time-out that is 0 of them. Raises QueueClosed when none did.")
      .def("get_many", &get_many, py::arg("n"), py::arg("timeout") = py::none(),
           "Takes exactly n trajectories, without a copy; after close(), what is left when that is fewer. "
           "Raises "
           "TimeoutError, QueueClosed when nothing is left. One consumer process at a time.")
      .def("close", &TrajectoryQueue::close, "Ends waiting; what is in the queue can still be taken.")
      .def_property_readonly("closed", &TrajectoryQueue::closed,
                             "Whether close() was called, by any process.")
      .def("__len__", &TrajectoryQueue::size)
      .def("statistics", &TrajectoryQueue::statistics, "Counts so far, read without stopping anyone.")
      .def("recover", &TrajectoryQueue::recover,
           "Gives places claimed by dead processes to the next put; returns how many.")
      .def("unlink", &TrajectoryQueue::unlink, "Removes the name; mappings stay valid.")
      .def(py::pickle(
          [](const TrajectoryQueue& self) { return self.name(); },
          [](const std::string& name) { return TrajectoryQueue::attach(name, Deadline::in(kAttach)); }))
      .def("__repr__", [](const TrajectoryQueue& self) {
        return "<TrajectoryQueue " + self.name() + ", " + std::to_string(self.size()) + " of " +
               std::to_string(self.capacity()) + " trajectories>";
      });
}

}  // namespace gristmill::python
