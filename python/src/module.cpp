// ebbtide._core: the extension module. It binds; it decides nothing.
#include <nanobind/nanobind.h>

#include "errors.hpp"
#include "objects.hpp"

NB_MODULE(_core, module) {
  namespace nb = nanobind;
  using namespace ebb::python;
  nb::set_leak_warnings(false);  // ebbtide's atexit handler closes what the interpreter keeps until its end
  module.doc() = "The C++ side of ebbtide. Use the names of the package ebbtide.";
  module.def("version", [] { return EBB_VERSION; }, "The package's version.");
  bind_future(module);
  bind_device_array(module);
  bind_lease(module);
  bind_history(module);
  module.def(
      "parse_bytes", [](const std::string& key, const std::string& text) { return check(ebb::parse_bytes(key, text)); },
      nb::arg("key"), nb::arg("text"), "``\"4GiB\"`` as a number of bytes; a refusal names ``key``.");
  module.def(
      "format_bytes", [](std::uint64_t bytes) { return ebb::format_bytes(bytes); }, nb::arg("bytes"),
      "``4294967296`` as ``\"4 GiB\"``.");
  bind_inspect(module);
  bind_machine(module);
  bind_node(module);
  bind_write_recorder(module);
  bind_group(module);
}
