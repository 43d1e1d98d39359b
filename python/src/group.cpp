// What ebbtide.mpi asks of a group's members.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include "ebbtide/agreement.hpp"
#include "objects.hpp"

namespace ebb::python {
namespace {

using Found = std::vector<std::pair<std::size_t, Version>>;

Found pairs(const std::vector<Agreement::At>& all) {
  Found found;
  for (const auto& [history, version] : all) found.emplace_back(history, version);
  return found;
}

}  // namespace

void bind_group(nb::module_& module) {
  nb::class_<Agreement>(module, "Agreement",
                        "What one member of a group knows; see ebbtide/agreement.hpp and ebbtide.mpi.")
      .def(nb::init<>())
      .def("add_history", &Agreement::add_history)
      .def("written", &Agreement::written, nb::arg("history"), nb::arg("version"))
      .def("durable", &Agreement::durable, nb::arg("history"), nb::arg("version"))
      .def("failed", &Agreement::failed, nb::arg("history"), nb::arg("version"))
      .def("restart", &Agreement::restart, nb::arg("history"), nb::arg("version"))
      .def("is_void", &Agreement::is_void, nb::arg("history"), nb::arg("version"))
      .def("last", &Agreement::last, nb::arg("history"))
      .def("arrive", &Agreement::arrive)
      .def("met", &Agreement::met)
      .def("offer", &Agreement::offer)
      .def(
          "take",
          [](Agreement& self, const std::vector<std::int64_t>& minima) {
            const auto outcome = self.take(minima);
            return std::pair(pairs(outcome.voided), pairs(outcome.agreed));
          },
          nb::arg("minima"), "What is void, and what is agreed on: (history, version) of each.");
}

}  // namespace ebb::python
