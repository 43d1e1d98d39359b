// The binding of ebbtide.sim.spill: the planner's choice of routes to neighbours' memory, and how long it takes to
// make.
#include <array>
#include <chrono>
#include <nanobind/nanobind.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <stdexcept>

#include "errors.hpp"
#include "models/models.hpp"
#include "modules.hpp"
#include "text.hpp"

namespace ebb::python {
namespace {

using models::FlowStrategy;
using models::PathCost;
using Rates = std::vector<std::uint64_t>;
using TransferTuple = std::tuple<int, std::string, int, std::uint64_t>;  // from, route, peer or -1, bytes

struct NamedStrategy {
  const char* name;
  FlowStrategy strategy;
  PathCost cost = PathCost::slowest;
};
constexpr std::array<NamedStrategy, 5> kStrategies{{{"local", FlowStrategy::local},
                                                    {"greedy", FlowStrategy::greedy},
                                                    {"flow_paper", FlowStrategy::flow_paper},
                                                    {"flow_paper_added", FlowStrategy::flow_paper, PathCost::added},
                                                    {"flow", FlowStrategy::flow}}};
constexpr std::array<const char*, 3> kRoutes{"peer", "host", "relay"};

models::PeerLinks make_links(Rates pairs, Rates egress, Rates ingress, Rates host, std::uint64_t host_memory,
                             bool relays) {
  models::PeerLinks links(0);
  links.pairs = std::move(pairs);
  links.egress = std::move(egress);
  links.ingress = std::move(ingress);
  links.host = std::move(host);
  links.host_memory = host_memory;
  links.relays = relays;
  return links;
}

std::tuple<std::vector<TransferTuple>, std::vector<std::int64_t>, std::int64_t> plan_spill(
    const models::PeerLinks& links, const Rates& remainder, const Rates& spare, const std::string& strategy,
    std::uint64_t unit) {
  for (const NamedStrategy& one : kStrategies) {
    if (strategy != one.name) continue;
    models::FlowPlan plan;
    const auto begin = std::chrono::steady_clock::now();
    try {
      plan = models::plan_flow(links, {remainder, spare}, one.strategy, {unit, one.cost});
    } catch (const std::logic_error& error) {
      raise(Errc::invalid_argument, error.what());
    }
    const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - begin;
    std::vector<TransferTuple> transfers;
    for (const models::Transfer& t : plan.transfers)
      transfers.emplace_back(t.from, kRoutes[static_cast<std::size_t>(t.kind)], t.peer, t.bytes);
    return {transfers, plan.ends, took.count()};
  }
  raise(Errc::invalid_argument, "strategy=\"" + strategy + "\" is not valid");
}

}  // namespace

void bind_spill(nb::module_& module) {
  nb::class_<models::PeerLinks>(module, "SimPeers",
                                "The links of a node's GPUs, as ``ebbtide.sim.Topology`` makes them; bytes a second.")
      .def_static("make", &make_links, nb::arg("pairs"), nb::arg("egress"), nb::arg("ingress"), nb::arg("host"),
                  nb::arg("host_memory"), nb::arg("relays"))
      .def(
          "plan", &plan_spill, nb::arg("remainder"), nb::arg("spare"), nb::arg("strategy"), nb::arg("unit"),
          "Transfers (from, route, peer, bytes), when each GPU's end, and how long it took to plan them; nanoseconds.");
}

}  // namespace ebb::python
