// The binding of ebbtide.sim.WriteRecorder.
#include "ebbtide/write_recorder.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "errors.hpp"
#include "objects.hpp"

namespace ebb::python {
namespace {

std::vector<std::tuple<std::int64_t, std::uint32_t>> stop_recorder(WriteRecorder& self) {
  auto stopped = [&] {
    const nb::gil_scoped_release released;
    return self.stop();
  }();
  std::vector<std::tuple<std::int64_t, std::uint32_t>> out;
  for (const RecordedWrite& write : check(std::move(stopped))) out.emplace_back(write.nanoseconds, write.page);
  return out;
}

}  // namespace

void bind_write_recorder(nb::module_& module) {
  nb::class_<WriteRecorder>(module, "WriteRecorder", "Records first writes to pages; see ebbtide.sim.WriteRecorder.")
      .def_static(
          "start",
          [](std::uintptr_t address, std::size_t bytes) {
            return check(WriteRecorder::start(reinterpret_cast<void*>(address), bytes));
          },
          nb::arg("address"), nb::arg("bytes"))
      .def("cut", [](WriteRecorder& self) { check(self.cut()); })
      .def("stop", &stop_recorder, "Nanoseconds since the cut and page, of each.");
}

}  // namespace ebb::python
