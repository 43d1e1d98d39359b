#pragma once
// What the parts of ebbtide._models share.
#include <nanobind/nanobind.h>

namespace ebb::python {

namespace nb = nanobind;

void bind_sim(nb::module_& module);
void bind_spill(nb::module_& module);
void bind_zones(nb::module_& module);

}  // namespace ebb::python
