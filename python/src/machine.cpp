// What this build can do and what the machine has: the measured side of `ebbtide doctor`.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "errors.hpp"
#include "objects.hpp"
#include "platform/cuda.hpp"

namespace ebb::python {
namespace {

nb::dict build_info() {
  nb::dict info;
  info["version"] = EBB_VERSION;
#ifdef EBB_BUILT_WITH_CUDA
  info["cuda"] = EBB_BUILT_WITH_CUDA;
#else
  info["cuda"] = nb::none();
#endif
#ifdef EBB_BUILT_WITH_URING
  info["io_uring"] = true;
#else
  info["io_uring"] = false;
#endif
  info["compiler"] = __VERSION__;
  return info;
}

nb::list cuda_devices(bool open) {
  const auto found = [&] {
    nb::gil_scoped_release unlocked;
    return platform::find_cuda_devices(open);
  }();
  nb::list all;
  for (const platform::CudaFound& gpu : found) {
    nb::dict one;
    one["ordinal"] = gpu.ordinal;
    one["name"] = nb::str(gpu.name.c_str());
    one["total_bytes"] = gpu.total_bytes;
    if (gpu.free_bytes > 0) {
      one["free_bytes"] = gpu.free_bytes;
    } else {
      one["free_bytes"] = nb::none();
    }
    one["pci"] = nb::str(gpu.pci.c_str());
    all.append(one);
  }
  return all;
}

}  // namespace

void bind_machine(nb::module_& module) {
  module.def("build_info", &build_info, nb::sig("def build_info() -> dict[str, Any]"),
             "What the extension was built with: ``version``, ``cuda`` (the toolkit's version, or None), ``io_uring``\n"
             "(whether it was compiled in), ``compiler``.");
  module.def("cuda_devices", &cuda_devices, nb::arg("open") = false,
             nb::sig("def cuda_devices(open: bool = False) -> list[dict[str, Any]]"),
             "The GPUs that this process may use: ``ordinal``, ``name``, ``total_bytes``, ``free_bytes``, ``pci``.\n\n"
             "``free_bytes`` is None for a GPU that the process does not use yet, unless ``open``: then a context is\n"
             "opened on each for as long as it takes to ask.");
  module.def("cuda_absent_reason", &platform::cuda_absent_reason, "Why there is no GPU; empty when there is one.");
}

}  // namespace ebb::python
