#include "planner/topology.hpp"

#include <algorithm>
#include <gtest/gtest.h>

#include "driver.hpp"
#include "planner/link_estimate.hpp"

namespace ebb::planner {
namespace {

Machine machine_with(std::vector<TierSpec> tiers) {
  Machine machine;
  machine.tiers = std::move(tiers);
  connect(machine);
  return machine;
}

Machine three() {
  return machine_with(
      {{"device", Medium::device, 1 << 20}, {"host", Medium::host, 1 << 20}, {"local", Medium::file, 1 << 20}});
}

using Names = std::vector<std::string>;
constexpr int kApp = -1;

// Between tiers, or the application.
Names hops(const Machine& machine, int from, int to) {
  const auto node = [&](int tier) {
    return tier == kApp ? kApplication : machine.tiers.at(static_cast<std::size_t>(tier)).node;
  };
  const Route r = route(machine, node(from), node(to));
  Names names;
  for (std::size_t h = 0; h < static_cast<std::size_t>(r.hops); ++h)
    names.push_back(machine.links.at(static_cast<std::size_t>(r.link.at(h))).name);
  return names;
}

TEST(Topology, HostMemoryIsReachedDirectlyAndFilesFromElsewhereThroughTheRing) {
  EXPECT_EQ(hops(three(), kApp, 0), Names{"app>device"});
  EXPECT_EQ(hops(three(), 0, 1), Names{"device>host"});
  EXPECT_EQ(hops(three(), 1, 2), Names{"host>local"});
  EXPECT_EQ(hops(three(), 1, kApp), Names{"host>app"});
  EXPECT_EQ(hops(three(), 2, 0), (Names{"local>host", "host>device"}));
  EXPECT_EQ(hops(three(), kApp, 2), (Names{"app>host", "host>local"}));
}

TEST(Topology, TheRingIsThereWithoutAHostTier) {
  const Machine two = machine_with({{"device", Medium::device, 1 << 20}, {"local", Medium::file, 1 << 20}});
  EXPECT_EQ(hops(two, 0, 1), (Names{"device>host", "host>local"}));
}

TEST(Topology, AFileTiersReadsAndWritesShareItsDisk) {
  const Machine machine = three();
  const auto& down = machine.links.at(static_cast<std::size_t>(find_link(machine.links, "host>local")));
  const auto& up = machine.links.at(static_cast<std::size_t>(find_link(machine.links, "local>host")));
  ASSERT_EQ(down.resources.size(), 1u);
  EXPECT_EQ(down.resources, up.resources);
  EXPECT_EQ(find_link(machine.links, "app>local"), -1);
}

TEST(Topology, TiersOfOneKindHaveLinksOfTheirOwn) {
  const Machine machine = machine_with({{"gpu0", Medium::device, 1 << 20},
                                        {"gpu1", Medium::device, 1 << 20},
                                        {"near", Medium::host, 1 << 20},
                                        {"far", Medium::host, 1 << 20}});
  EXPECT_EQ(hops(machine, 0, 1), Names{"gpu0>gpu1"});
  EXPECT_EQ(hops(machine, 2, 3), Names{"host>host"});
  EXPECT_EQ(hops(machine, 1, 3), Names{"gpu1>host"});
}

// A device whose only way to the disk leads over a neighbour and host memory.
Machine three_hops() {
  Machine machine;
  machine.tiers = {{"far", Medium::device, 16 << 20, 4096, 2}, {"local", Medium::file, 64 << 20, 4096, 4}};
  machine.nodes = {{"app"}, {"host", 4}, {"far"}, {"near", 2}, {"disk"}};
  machine.resources = {{"disk"}};
  const auto link = [&](NodeIndex from, NodeIndex to, std::vector<int> resources = {}) {
    LinkSpec spec;
    spec.name =
        machine.nodes[static_cast<std::size_t>(from)].name + ">" + machine.nodes[static_cast<std::size_t>(to)].name;
    spec.from = from;
    spec.to = to;
    spec.chunk = 1 << 20;
    spec.resources = std::move(resources);
    machine.links.push_back(std::move(spec));
  };
  for (const auto& [a, b] : {std::pair<NodeIndex, NodeIndex>{0, 2}, {2, 3}, {3, 1}, {0, 1}}) link(a, b), link(b, a);
  link(1, 4, {0}), link(4, 1, {0});
  machine.ring_slot = 1 << 20;
  return machine;
}

TEST(Topology, ARouteHasAsManyHopsAsItTakes) {
  EXPECT_EQ(hops(three_hops(), 0, 1), (Names{"far>near", "near>host", "host>disk"}));
  EXPECT_EQ(hops(three_hops(), 1, 0), (Names{"disk>host", "host>near", "near>far"}));
  EXPECT_EQ(hops(three_hops(), kApp, 1), (Names{"app>host", "host>disk"}));
  Machine cut = three_hops();
  cut.nodes[3].staging = 0;
  EXPECT_THROW(hops(cut, 0, 1), std::logic_error) << "nothing passes through a node without a ring";
}

TEST(Topology, WhatPassesTwoRingsArrives) {
  testing_support::Driver d(three_hops());
  for (Version v = 0; v < 6; ++v) ASSERT_EQ(d.write(v, 8), Reason::ok);
  d.run();
  EXPECT_GT(d.by_link["near>host"], 0u);
  d.hint({5, 4, 3, 2, 1, 0});
  d.tell(event::StartPrefetch{});
  for (Version v = 6; v-- > 0;) ASSERT_EQ(d.read(v), Reason::ok);
  d.run();
  EXPECT_GT(d.by_link["host>near"], 0u);
}

// Steady traffic at one rate, of which completions are told together, each a little after the one before.
TEST(LinkEstimate, BurstsOfCompletionsDoNotHideTheTimeBetweenThem) {
  constexpr Bytes kChunk = 4 << 20;
  constexpr int kDepth = 8;
  constexpr Time kEach = 1'500'000;
  const double real = static_cast<double>(kChunk) * 1e9 / static_cast<double>(kEach);
  for (const int burst : {1, 2, 3, 5, 8})
    for (const Time apart : {0, 1'000, 50'000}) {
      LinkSpec spec;
      spec.bytes_per_s = real;
      LinkEstimate estimate(spec);
      for (int i = 0; i < kDepth; ++i) estimate.issued(0);
      double least = real, most = real;
      for (Time now = burst * kEach; now < 2000 * kEach; now += burst * kEach)
        for (int i = 0; i < burst; ++i) {
          estimate.finished(now + i * apart, kChunk);
          estimate.issued(now + i * apart);
          least = std::min(least, estimate.bytes_per_s());
          most = std::max(most, estimate.bytes_per_s());
        }
      EXPECT_GT(least, 0.8 * real) << burst << " " << apart;
      EXPECT_LT(most, 1.25 * real) << burst << " " << apart;
    }
}

TEST(LinkEstimate, IsBusyUpToTheLastCompletionWhileMoreIsInFlight) {
  LinkEstimate estimate(LinkSpec{});
  estimate.issued(100);
  estimate.issued(150);
  EXPECT_EQ(estimate.busy(), 0) << "nothing has come through";
  estimate.finished(300, 4096);
  EXPECT_EQ(estimate.busy(), 200);
  estimate.finished(450, 4096);
  EXPECT_EQ(estimate.busy(), 350);
  estimate.issued(1000);
  EXPECT_EQ(estimate.busy(), 350);
  estimate.failed(1010);
  EXPECT_EQ(estimate.busy(), 360);
}

// One at a time, or a queue that has become shorter: it still learns.
TEST(LinkEstimate, FollowsARateThatChanges) {
  LinkSpec spec;
  spec.bytes_per_s = 1e9;
  LinkEstimate estimate(spec);
  for (int i = 0; i < 16; ++i) estimate.issued(0);
  for (int i = 0; i < 16; ++i) estimate.finished(0, 0);
  Time now = 0;
  for (int i = 0; i < 64; ++i) {
    estimate.issued(now);
    estimate.finished(now += 1'000'000, 4'000'000);
  }
  EXPECT_NEAR(estimate.bytes_per_s(), 4e9, 0.1e9);
}

}  // namespace
}  // namespace ebb::planner
