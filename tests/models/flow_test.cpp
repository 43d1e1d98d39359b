// What the slides say, step by step, and what is refused.
#include "models/flow.hpp"

#include <gtest/gtest.h>
#include <stdexcept>

#include "tests/models/flow_links.hpp"

namespace ebb::models {
namespace {

double ms(Time time) { return static_cast<double>(time) * 1e-6; }

Overflow slide_46() {
  Overflow out{std::vector<Bytes>(8), std::vector<Bytes>(8)};
  out.remainder[0] = 480 * kMb;
  out.remainder[6] = 240 * kMb;
  out.spare[4] = 480 * kMb;
  out.spare[1] = 137 * kMb;
  return out;
}

TEST(Flow, ComesToTheTimesOfSlide46) {
  EXPECT_EQ(plan_flow(dgx1v(), slide_46(), FlowStrategy::local).time(), 40'000'000);
  const FlowPlan greedy = plan_flow(dgx1v(), slide_46(), FlowStrategy::greedy);
  EXPECT_EQ(greedy.time(), 20'000'000);
  EXPECT_EQ(greedy.transfers,
            (std::vector<Transfer>{{0, RouteKind::peer, 4, 480 * kMb}, {6, RouteKind::host, -1, 240 * kMb}}));
  EXPECT_EQ(greedy.ends[0], 10'000'000);
  const FlowPlan flow = plan_flow(dgx1v(), slide_46(), FlowStrategy::flow);
  EXPECT_EQ(flow.time(), 6'666'667);
  EXPECT_EQ(flow.ends[6], 6'666'667);
  EXPECT_EQ(flow.ends[0], 5'716'667);  // (480 - 137) MB at 60 GB/s
  ASSERT_EQ(flow.transfers.size(), 5u);
  EXPECT_EQ(flow.transfers[0], (Transfer{0, RouteKind::peer, 1, 137 * kMb}));
  EXPECT_NEAR(static_cast<double>(flow.transfers[1].bytes), 274.4e6, 50);
  EXPECT_NEAR(static_cast<double>(flow.transfers[2].bytes), 68.6e6, 50);
  EXPECT_NEAR(static_cast<double>(flow.transfers[3].bytes), 160e6, 50);
  EXPECT_NEAR(static_cast<double>(flow.transfers[4].bytes), 80e6, 50);
  // The slide's own amounts, in its whole megabytes.
  const FlowPlan paper = plan_flow(dgx1v(), slide_46(), FlowStrategy::flow_paper);
  EXPECT_EQ(paper.transfers, (std::vector<Transfer>{{0, RouteKind::peer, 1, 137 * kMb},
                                                    {0, RouteKind::peer, 4, 275 * kMb},
                                                    {0, RouteKind::host, -1, 68 * kMb},
                                                    {6, RouteKind::peer, 4, 160 * kMb},
                                                    {6, RouteKind::host, -1, 80 * kMb}}));
}

// Two GPUs and one peer that can spare less than what either has too much.
TEST(Flow, IsLeastWhereAddedCostsAreNot) {
  PeerLinks links(3);
  links.host.assign(3, 12 * kGb);
  links.pair(0, 2) = 48 * kGb;
  links.pair(1, 2) = 24 * kGb;
  const Overflow overflow{{240 * kMb, 240 * kMb, 0}, {0, 0, 220 * kMb}};
  const auto time = [&](FlowStrategy strategy, PathCost cost = PathCost::slowest) {
    return ms(plan_flow(links, overflow, strategy, {kMb, cost}).time());
  };
  EXPECT_NEAR(time(FlowStrategy::flow), 260.0 / 24, 1e-6);  // what does not fit, over both links to the host
  EXPECT_NEAR(time(FlowStrategy::greedy), 20, 1e-6);
  EXPECT_NEAR(time(FlowStrategy::flow_paper), 260.0 / 24, 1e-6);
  EXPECT_NEAR(time(FlowStrategy::flow_paper, PathCost::added), 140.0 / 12, 1e-6);

  links.relays = true;  // a third link to the host
  EXPECT_NEAR(time(FlowStrategy::flow), 260.0 / 36, 1e-6);
}

// On a switch a GPU's own rate counts, not that of a pair; and the links to the host share its memory.
TEST(Flow, CountsWhatNeighboursShare) {
  PeerLinks links(4);
  links.host.assign(4, 50 * kGb);
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j)
      if (i != j) links.pair(i, j) = 400 * kGb;
  const Overflow to_peers{{8'000 * kMb, 0, 0, 0}, {0, 4'000 * kMb, 4'000 * kMb, 4'000 * kMb}};
  EXPECT_NEAR(ms(plan_flow(links, to_peers, FlowStrategy::flow).time()), 8'000.0 / 1'250, 1e-5);
  links.egress.assign(4, 400 * kGb);
  EXPECT_NEAR(ms(plan_flow(links, to_peers, FlowStrategy::flow).time()), 8'000.0 / 450, 1e-5);
  EXPECT_NEAR(ms(plan_flow(links, to_peers, FlowStrategy::greedy).time()), 20, 1e-5);

  const Overflow to_host{{500 * kMb, 500 * kMb, 500 * kMb, 500 * kMb}, {0, 0, 0, 0}};
  EXPECT_NEAR(ms(plan_flow(links, to_host, FlowStrategy::local).time()), 10, 1e-5);
  links.host_memory = 100 * kGb;
  EXPECT_NEAR(ms(plan_flow(links, to_host, FlowStrategy::local).time()), 20, 1e-5);
  EXPECT_NEAR(ms(plan_flow(links, to_host, FlowStrategy::flow).time()), 20, 1e-5);

  // An idle neighbour's link doubles the rate to the host.
  links.relays = true;
  const Overflow alone{{1'000 * kMb, 0, 0, 0}, {0, 0, 0, 0}};
  EXPECT_NEAR(ms(plan_flow(links, alone, FlowStrategy::local).time()), 20, 1e-5);
  EXPECT_NEAR(ms(plan_flow(links, alone, FlowStrategy::flow).time()), 10, 1e-5);
}

TEST(Flow, WithoutRemaindersThereIsNothingToDo) {
  for (FlowStrategy strategy :
       {FlowStrategy::local, FlowStrategy::greedy, FlowStrategy::flow_paper, FlowStrategy::flow}) {
    const FlowPlan plan = plan_flow(dgx1v(), Overflow{std::vector<Bytes>(8), std::vector<Bytes>(8)}, strategy);
    EXPECT_TRUE(plan.transfers.empty());
    EXPECT_EQ(plan.time(), 0);
  }
}

TEST(Flow, NumbersThatContradictEachOtherAreRefused) {
  const Overflow none{std::vector<Bytes>(8), std::vector<Bytes>(8)};
  const auto refused = [](const PeerLinks& links, const Overflow& overflow, FlowOptions options = {}) {
    EXPECT_THROW(plan_flow(links, overflow, FlowStrategy::flow_paper, options), std::logic_error);
  };
  refused(PeerLinks(0), {});
  refused(dgx1v(), {{1}, {1}});
  refused(PeerLinks(8), none);  // no links to the host
  PeerLinks fast = dgx1v();
  fast.pair(0, 1) = 1'000'001 * kGb;
  refused(fast, none);
  Overflow large = none;
  large.spare[0] = 1'000'000'001 * kMb;
  refused(dgx1v(), large);
  PeerLinks slow = dgx1v();
  slow.pair(0, 1) = 1;
  refused(slow, {std::vector<Bytes>(8, 1'000 * kMb), std::vector<Bytes>(8)});
  refused(dgx1v(), slide_46(), {.unit = 0});
  refused(dgx1v(), slide_46(), {.unit = 1});
}

}  // namespace
}  // namespace ebb::models
