// The bindings of ebbtide.sim.run_zones, the memory-zone hardware in virtual time.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <stdexcept>

#include "errors.hpp"
#include "models/models.hpp"
#include "modules.hpp"
#include "text.hpp"

namespace ebb::python {
namespace {

using models::ZoneHardware;
using models::ZoneOrder;
using models::ZonePattern;
using models::ZoneProgram;

constexpr const char* kZoneOrders[] = {"same", "reversed", "shuffled"};

template <class Function>
auto refusing(Function&& function) {
  try {
    return function();
  } catch (const std::logic_error& error) {
    raise(Errc::invalid_argument, error.what());
  }
}

ZoneProgram of_pattern(planner::Bytes memory, double dirty, double filled, double reuse, const std::string& order,
                       double pace, std::uint64_t seed) {
  ZonePattern pattern{dirty, filled, reuse, ZoneOrder::same, pace, seed};
  for (std::size_t i = 0; i < std::size(kZoneOrders); ++i) {
    if (order != kZoneOrders[i]) continue;
    pattern.order = static_cast<ZoneOrder>(i);
    return refusing([&] { return make_program(memory, pattern); });
  }
  raise(Errc::invalid_argument, "order=\"" + order + "\" is not valid");
}

ZoneProgram of_trace(planner::Bytes memory, std::vector<std::uint32_t> before, const std::vector<planner::Time>& times,
                     const std::vector<std::uint32_t>& pages) {
  if (times.size() != pages.size()) raise(Errc::invalid_argument, "a trace has a page for each time");
  ZoneProgram program{memory, std::move(before), {}};
  for (std::size_t i = 0; i < times.size(); ++i) program.after.push_back({times[i], pages[i]});
  return program;
}

ZoneHardware make_hardware(std::uint32_t channels, planner::Bytes table_cache, double link_rate, double link_half,
                           double memory_rate, planner::Time round_trip, planner::Bytes buffer, std::uint32_t slots,
                           double reserve, std::uint32_t held_zones) {
  return {channels, table_cache, link_rate, link_half, memory_rate, round_trip, buffer, slots, reserve, held_zones};
}

nb::dict run(const ZoneHardware& hardware, const std::string& name, const ZoneProgram& program) {
  const auto mode = models::zone_mode(name);
  if (!mode) raise(Errc::invalid_argument, "mode=\"" + name + "\" is not valid");
  const models::ZoneRun found = refusing([&] {
    const nb::gil_scoped_release released;
    return run_zones(hardware, *mode, program);
  });
  nb::dict out;
  out["lost_ns"] = found.lost;
  out["stored_ns"] = found.stored;
  out["first_stall_ns"] =
      found.first_stall == planner::kNever ? std::optional<planner::Time>{} : std::optional{found.first_stall};
  out["longest_stall_ns"] = found.longest_stall;
  out["stalls"] = found.stalls;
  out["held"] = found.held;
  out["owed"] = found.owed;
  out["written"] = found.written;
  out["transfers"] = found.transfers;
  out["table"] = found.table;
  out["table_hits"] = found.traffic.hits;
  out["table_misses"] = found.traffic.misses;
  out["table_written_back"] = found.traffic.written_back;
  out["faults"] = found.plan.faults;
  out["duplicates"] = found.plan.duplicates;
  return out;
}

nb::list patterns() {
  nb::list out;
  for (const models::NamedPattern& one : models::zone_patterns()) {
    const ZonePattern& p = one.pattern;
    out.append(nb::make_tuple(one.name, one.says, one.adversarial, p.dirty, p.filled, p.reuse,
                              kZoneOrders[static_cast<std::size_t>(p.order)], p.pace, p.seed));
  }
  return out;
}

}  // namespace

void bind_zones(nb::module_& module) {
  nb::class_<ZoneProgram>(module, "SimZoneProgram", "What a program writes around a cut; see ebbtide.sim.ZoneProgram.")
      .def_static("of_pattern", &of_pattern, nb::arg("memory"), nb::arg("dirty"), nb::arg("filled"), nb::arg("reuse"),
                  nb::arg("order"), nb::arg("pace"), nb::arg("seed"))
      .def_static("of_trace", &of_trace, nb::arg("memory"), nb::arg("before"), nb::arg("times"), nb::arg("pages"))
      .def_ro("memory", &ZoneProgram::memory);
  nb::class_<ZoneHardware>(module, "SimZoneHardware", "The memory-zone hardware; see ebbtide.sim.ZoneHardware.")
      .def_static("make", &make_hardware, nb::arg("channels"), nb::arg("table_cache"), nb::arg("link_rate"),
                  nb::arg("link_half"), nb::arg("memory_rate"), nb::arg("round_trip"), nb::arg("buffer"),
                  nb::arg("slots"), nb::arg("reserve"), nb::arg("held_zones"))
      .def("run", &run, nb::arg("mode"), nb::arg("program"),
           nb::sig("def run(self, mode: str, program: SimZoneProgram) -> dict[str, typing.Any]"),
           "One cut; times are nanoseconds.");
  module.def("sim_zone_patterns", &patterns, nb::sig("def sim_zone_patterns() -> list[tuple[typing.Any, ...]]"),
             "Name, words, adversarial, dirty, filled, reuse, order, pace and seed of each known pattern.");
}

}  // namespace ebb::python
