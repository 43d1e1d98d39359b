// What this build supports and what the machine has, for `ebbtide doctor`. Nothing here opens a store.
#include "ebbtide/machine.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>

#include "errors.hpp"
#include "objects.hpp"
#include "text.hpp"

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
    return machine::gpus(open);
  }();
  nb::list all;
  for (const machine::Gpu& gpu : found) {
    nb::dict one;
    one["ordinal"] = gpu.ordinal;
    one["name"] = nb::str(gpu.name.c_str());
    one["total_bytes"] = gpu.total_bytes;
    one["free_bytes"] = nb::cast(gpu.free_bytes);
    one["pci"] = nb::str(gpu.pci.c_str());
    all.append(one);
  }
  return all;
}

void copy_bytes(std::uintptr_t to, std::uintptr_t from, std::size_t bytes) {
  const nb::gil_scoped_release unlocked;
  machine::copy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
}

nb::dict link_rates(const std::string& device, std::size_t span) {
  const machine::LinkRates rates = check([&] {
    nb::gil_scoped_release unlocked;
    return machine::link_rates(device, span);
  }());
  nb::dict all;
  all["device_copy"] = rates.device_copy;
  all["device_to_host"] = rates.device_to_host;
  all["host_to_device"] = rates.host_to_device;
  all["both"] = rates.both;
  return all;
}

nb::list peer_links(std::size_t span) {
  const auto found = [&] {
    nb::gil_scoped_release unlocked;
    return machine::peer_links(span);
  }();
  nb::list all;
  for (const machine::PeerLink& link : found) {
    nb::dict one;
    one["from"] = link.from;
    one["to"] = link.to;
    one["usable"] = link.usable;
    one["reason"] = nb::str(link.reason.c_str());
    one["damaged"] = link.damaged;
    one["store"] = link.store;
    one["load"] = link.load;
    all.append(one);
  }
  return all;
}

nb::dict write_tracking() {
  const machine::WriteTracking found = [] {
    nb::gil_scoped_release unlocked;
    return machine::write_tracking();
  }();
  nb::list watches;
  for (const machine::WriteWatch& watch : found.watches) {
    nb::dict one;
    one["name"] = nb::str(watch.name.c_str());
    one["usable"] = watch.usable;
    one["user_faults_only"] = watch.user_faults_only;
    one["note"] = nb::str(watch.note.c_str());
    watches.append(one);
  }
  nb::dict all;
  all["watches"] = watches;
  all["auto"] = found.automatic == Track::faults ? "faults" : found.automatic == Track::scan ? "scan" : "digest";
  return all;
}

nb::dict file_system(const std::string& directory) {
  const machine::FileSystem found = check(machine::file_system(directory));
  nb::dict one;
  one["kind"] = nb::str(found.kind.c_str());
  one["in_memory"] = found.in_memory;
  one["free_bytes"] = found.free_bytes;
  one["total_bytes"] = found.total_bytes;
  return one;
}

nb::dict memory_limits() {
  const machine::MemoryLimits found = check(machine::memory_limits());
  nb::dict limits;
  limits["available"] = found.available;
  limits["cgroup"] = nb::cast(found.cgroup);
  limits["cgroup_left"] = nb::cast(found.cgroup_left);
  limits["local_ranks"] = found.local_ranks;
  return limits;
}

nb::dict planned(const std::map<std::string, std::string>& given) {
  const machine::Plan chosen = check([&]() -> Result<machine::Plan> {
    nb::gil_scoped_release unlocked;
    Options options;
    for (const auto& [key, text] : given)
      if (auto set = set_option(options, key, text); !set) return set.error();
    return machine::plan(options);
  }());
  nb::dict plan;
  plan["device"] = chosen.device;
  plan["host"] = chosen.host;
  plan["local"] = chosen.disk;
  plan["directory"] = nb::str(chosen.directory.c_str());
  plan["settings"] = nb::str(chosen.settings.c_str());
  return plan;
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
             "opened on each to ask, and closed again.");
  module.def("cuda_absent_reason", &machine::gpu_absent_reason, "Why there is no GPU; empty when there is one.");
  module.def("copy_bytes", &copy_bytes, nb::arg("to"), nb::arg("source"), nb::arg("bytes"),
             "Copies between two addresses of host memory as a store without a GPU does.");
  module.def("link_rates", &link_rates, nb::arg("device"), nb::arg("span") = std::size_t{256} << 20,
             nb::sig("def link_rates(device: str, span: int = 268435456) -> dict[str, float]"),
             "Bytes/s of bare copies on a device (``\"cuda:0\"``, ``\"cpu\"``): ``device_copy`` within it,\n"
             "``device_to_host`` and ``host_to_device`` between it and pinned memory, ``both`` at once, together.");
  module.def("peer_links", &peer_links, nb::arg("span") = std::size_t{128} << 20,
             nb::sig("def peer_links(span: int = 134217728) -> list[dict[str, Any]]"),
             "How each GPU uses the memory of each other one: ``from``, ``to``, ``usable``, ``reason`` (why not),\n"
             "``damaged`` (bytes that were probed did not arrive), ``store`` and ``load`` (bytes/s to and from it).\n\n"
             "Each ordered pair is probed with bytes that are read back. Empty with fewer than two GPUs.");
  module.def("io_uring_absent_reason", &machine::io_uring_absent_reason,
             "Why io_uring cannot be used, according to an attempt; empty when it can.");
  module.def(
      "write_tracking", &write_tracking, nb::sig("def write_tracking() -> dict[str, Any]"),
      "How snapshots find writes here: ``auto`` (what ``track=\"auto\"`` uses: ``\"faults\"``, ``\"scan\"`` or\n"
      "``\"digest\"``), and ``watches``, each tried out: ``name``, ``usable``, ``user_faults_only`` (a read() into\n"
      "protected memory fails), ``note`` (why it is not usable, or limited).");
  module.def("file_system", &file_system, nb::arg("directory"),
             nb::sig("def file_system(directory: str) -> dict[str, Any]"),
             "``kind``, ``in_memory``, ``free_bytes`` and ``total_bytes`` of the file system that a directory is on.");
  module.def(
      "memory_limits", &memory_limits, nb::sig("def memory_limits() -> dict[str, int | None]"),
      "Bytes of memory ``available``, the lowest limit of the ``cgroup`` and what is left of it, ``cgroup_left``\n"
      "(None without a limit), and ``local_ranks``.");
  module.def("planned", &planned, nb::arg("options"), nb::sig("def planned(options: dict[str, str]) -> dict[str, Any]"),
             "What a store opened with these options would choose, without opening it: bytes of the tiers ``device``,\n"
             "``host`` and ``local`` (0: absent), ``directory``, ``settings``. Raises as :func:`ebbtide.open` does.");
}

}  // namespace ebb::python
