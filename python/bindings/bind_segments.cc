#include <pybind11/stl.h>

#include "core/segment.h"
#include "python/bindings/bindings.h"

namespace gristmill::python {

void bind_segments(py::module_& module) {
  py::class_<SegmentInfo>(module, "SegmentInfo", "A segment of shared memory that gristmill made.")
      .def_readonly("name", &SegmentInfo::name, "As in /dev/shm.")
      .def_property_readonly(
          "pid", [](const SegmentInfo& self) { return self.owner.pid; }, "Of its creator, from the name.")
      .def_readonly("bytes", &SegmentInfo::bytes, "Its size.")
      .def_readonly("dead", &SegmentInfo::dead, "Whether its owner is proved dead.")
      .def("__repr__", [](const SegmentInfo& self) {
        return "<segment " + self.name + ", " + std::to_string(self.bytes) + " bytes" +
               (self.dead ? ", owner dead>" : ">");
      });
  module.def("list_segments", &list_segments, "Every segment of this user, in name order.");
  module.def("sweep_segments", &sweep_segments,
             "Removes the segments whose owner is proved dead, and returns them.");
  module.def("segment_name", &segment_name, py::arg("run"), py::arg("part"),
             "A name for a segment of this process.");
  module.def("shared_memory_available", &shared_memory_available, "Bytes free in /dev/shm.");
}

}  // namespace gristmill::python
