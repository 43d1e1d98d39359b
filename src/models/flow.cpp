#include "models/flow.hpp"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <tuple>

#include "models/flow_graph.hpp"
#include "models/flow_strategies.hpp"

namespace ebb::models {
namespace {

__extension__ typedef unsigned __int128 Wide;

constexpr int kMostGpus = 64;
constexpr Bytes kPetabyte = 1'000'000'000'000'000;
constexpr Wide kCentury = Wide{100} * 366 * 86'400 * 1'000'000'000;  // nanoseconds

Wide time_of(Wide bytes, Rate rate) { return (bytes * 1'000'000'000 + rate - 1) / rate; }

void check_flow(const PeerLinks& links, const Overflow& overflow) {
  const auto wrong = [](bool is, const char* what) {
    if (is) throw std::logic_error(what);
  };
  const std::size_t n = links.host.size();
  wrong(n < 1 || n > kMostGpus, "a node has from 1 to 64 GPUs");
  wrong(links.pairs.size() != n * n || links.egress.size() != n || links.ingress.size() != n ||
            overflow.remainder.size() != n || overflow.spare.size() != n,
        "links, remainders and spare memory are of different numbers of GPUs");
  Rate slowest = kPetabyte;
  for (const auto* rates : {&links.pairs, &links.egress, &links.ingress, &links.host})
    for (Rate rate : *rates) {
      wrong(rate > kPetabyte, "a rate is above a petabyte a second");
      if (rate > 0) slowest = std::min(slowest, rate);
    }
  wrong(links.host_memory > kPetabyte, "a rate is above a petabyte a second");
  if (links.host_memory > 0) slowest = std::min(slowest, links.host_memory);
  wrong(std::count(links.host.begin(), links.host.end(), 0) > 0, "a GPU has no link to the host");
  Wide total = 0;
  for (std::size_t i = 0; i < n; ++i) {
    wrong(overflow.remainder[i] > kPetabyte || overflow.spare[i] > kPetabyte, "an amount is above a petabyte");
    total += overflow.remainder[i];
  }
  wrong(time_of(total, slowest) > kCentury, "the transfers could take more than a century");
}

std::vector<Transfer> all_to_host(const Overflow& overflow) {
  std::vector<Transfer> out;
  for (std::size_t i = 0; i < overflow.remainder.size(); ++i)
    if (overflow.remainder[i] > 0) out.push_back({static_cast<int>(i), RouteKind::host, -1, overflow.remainder[i]});
  return out;
}

// The slide's step 3 transfers the larger of the remainder and what the peer can spare; it must be the smaller.
std::vector<Transfer> greedy(const PeerLinks& links, const Overflow& overflow) {
  std::vector<int> order(overflow.remainder.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return overflow.remainder[gpu_index(a)] > overflow.remainder[gpu_index(b)]; });
  Overflow left = overflow;
  std::vector<Transfer> out;
  for (int i : order) {
    Bytes& remainder = left.remainder[gpu_index(i)];
    while (remainder > 0) {
      int best = -1;
      for (int j = 0; j < links.gpus(); ++j)
        if (j != i && left.spare[gpu_index(j)] > 0 && links.pair(i, j) > (best < 0 ? 0 : links.pair(i, best))) best = j;
      const Bytes part = best < 0 ? remainder : std::min(remainder, left.spare[gpu_index(best)]);
      out.push_back({i, best < 0 ? RouteKind::host : RouteKind::peer, best, part});
      remainder -= part;
      if (best >= 0) left.spare[gpu_index(best)] -= part;
    }
  }
  return out;
}

// When each source ends if each transfer runs at a steady rate: it takes as long as the busiest link that it uses,
// which is the least that all who use that link can take together.
std::vector<Time> ends_of(const PeerLinks& links, const std::vector<Transfer>& transfers) {
  const std::size_t n = links.host.size();
  std::vector<Wide> pairs(n * n), egress(n), ingress(n), host(n);
  Wide memory = 0;
  const auto each_link = [&](const Transfer& t, auto&& visit) {
    const std::size_t i = gpu_index(t.from), j = gpu_index(t.peer);
    if (t.kind != RouteKind::host) {
      visit(pairs[i * n + j], links.pairs[i * n + j]);
      visit(egress[i], links.egress[i]);
      visit(ingress[j], links.ingress[j]);
    }
    if (t.kind == RouteKind::peer) return;
    const std::size_t k = t.kind == RouteKind::host ? i : j;
    visit(host[k], links.host[k]);
    visit(memory, links.host_memory);
  };
  for (const Transfer& t : transfers) each_link(t, [&](Wide& load, Rate) { load += t.bytes; });
  std::vector<Time> ends(n);
  for (const Transfer& t : transfers)
    each_link(t, [&](const Wide& load, Rate rate) {
      Time& end = ends[gpu_index(t.from)];
      if (rate > 0) end = std::max(end, static_cast<Time>(time_of(load, rate)));
    });
  return ends;
}

}  // namespace

PeerLinks::PeerLinks(int gpus) {
  const std::size_t n = gpu_index(gpus);
  pairs.resize(n * n);
  for (auto* rates : {&egress, &ingress, &host}) rates->resize(n);
}

Time FlowPlan::time() const { return ends.empty() ? 0 : *std::max_element(ends.begin(), ends.end()); }

FlowPlan plan_flow(const PeerLinks& links, const Overflow& overflow, FlowStrategy strategy,
                   const FlowOptions& options) {
  check_flow(links, overflow);
  if (strategy == FlowStrategy::flow) return plan_least_time(links, overflow);
  FlowPlan plan;
  if (strategy == FlowStrategy::local) plan.transfers = all_to_host(overflow);
  if (strategy == FlowStrategy::greedy) plan.transfers = greedy(links, overflow);
  if (strategy == FlowStrategy::flow_paper) plan.transfers = plan_by_units(links, overflow, options);
  std::sort(plan.transfers.begin(), plan.transfers.end(), [](const Transfer& a, const Transfer& b) {
    return std::tie(a.from, a.kind, a.peer) < std::tie(b.from, b.kind, b.peer);
  });
  plan.ends = ends_of(links, plan.transfers);
  return plan;
}

}  // namespace ebb::models
