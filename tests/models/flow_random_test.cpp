// Drawn machines and moments: the least time against every cut, and what every plan must keep to.
#include <algorithm>
#include <gtest/gtest.h>

#include "models/flow.hpp"
#include "tests/long_form.hpp"
#include "tests/models/flow_cuts.hpp"
#include "tests/models/flow_links.hpp"

namespace ebb::models {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kCases = 500, kLongCases = 2'000;
#else
constexpr std::uint64_t kCases = 10'000, kLongCases = 100'000;
#endif

std::uint64_t cases() { return long_form() ? kLongCases : kCases; }

std::size_t gpu(int i) { return static_cast<std::size_t>(i); }

// What a link has carried of those that end by `end`.
struct Load {
  Rate rate = 0;
  std::vector<std::pair<int, Bytes>> parts;  // source, bytes
};

std::vector<Load> loads(const PeerLinks& links, const std::vector<Transfer>& transfers) {
  const int n = links.gpus();
  std::vector<Load> out;
  const auto link = [&](Rate rate, auto&& of) {
    Load load{rate, {}};
    for (const Transfer& t : transfers)
      if (of(t)) load.parts.push_back({t.from, t.bytes});
    if (rate > 0) out.push_back(load);
  };
  for (int i = 0; i < n; ++i) {
    link(links.egress[gpu(i)], [&](const Transfer& t) { return t.from == i && t.kind != RouteKind::host; });
    link(links.ingress[gpu(i)], [&](const Transfer& t) { return t.peer == i && t.kind != RouteKind::host; });
    link(links.host[gpu(i)], [&](const Transfer& t) {
      return t.kind == RouteKind::host ? t.from == i : t.kind == RouteKind::relay && t.peer == i;
    });
    for (int j = 0; j < n; ++j)
      link(links.pair(i, j),
           [&](const Transfer& t) { return t.from == i && t.peer == j && t.kind != RouteKind::host; });
  }
  link(links.host_memory, [](const Transfer& t) { return t.kind != RouteKind::peer; });
  return out;
}

// Everything is sent, over links that exist, into memory that is there; and no link is asked for more than it can do.
void check_plan(const PeerLinks& links, const Overflow& overflow, const FlowPlan& plan) {
  std::vector<Bytes> sent(overflow.remainder.size()), held(sent.size());
  for (const Transfer& t : plan.transfers) {
    ASSERT_GT(t.bytes, 0u);
    sent[gpu(t.from)] += t.bytes;
    if (t.kind == RouteKind::host) continue;
    ASSERT_NE(t.from, t.peer);
    ASSERT_GT(links.pair(t.from, t.peer), 0u);
    if (t.kind == RouteKind::peer) held[gpu(t.peer)] += t.bytes;
    ASSERT_TRUE(links.relays || t.kind != RouteKind::relay);
  }
  ASSERT_EQ(sent, overflow.remainder);
  for (std::size_t j = 0; j < held.size(); ++j) ASSERT_LE(held[j], overflow.spare[j]);
  for (const Load& load : loads(links, plan.transfers))
    for (const auto& [source, bytes] : load.parts) {
      double by_then = 0;
      for (const auto& [other, part] : load.parts)
        if (plan.ends[gpu(other)] <= plan.ends[gpu(source)]) by_then += static_cast<double>(part);
      const double end = static_cast<double>(plan.ends[gpu(source)]) * 1e-9;
      ASSERT_LE(by_then, static_cast<double>(load.rate) * end + static_cast<double>(plan.ends.size()));
    }
}

TEST(FlowRandom, NoCutAllowsLessThanTheLeastTime) {
  std::uint64_t sharing = 0;
  for (std::uint64_t seed = 1; seed <= cases(); ++seed) {
    SCOPED_TRACE(seed);
    FlowDraw draw(seed);
    const int n = draw.chance(10) ? 4 : static_cast<int>(draw.between(2, 3));
    const PeerLinks links = draw.links(n, false);
    const Overflow overflow = draw.overflow(n);
    const FlowPlan plan = plan_flow(links, overflow, FlowStrategy::flow);
    ASSERT_NO_FATAL_FAILURE(check_plan(links, overflow, plan));
    if (plan.time() == 0) continue;
    ASSERT_TRUE(Cuts(links, overflow, std::vector<Time>(gpu(n), plan.time())).pass());
    const std::vector<Time> sooner(gpu(n), plan.time() - 1);
    const Cuts cuts(links, overflow, sooner);
    ASSERT_FALSE(cuts.pass());
    // Those that cannot all end sooner are the ones that end last; of the others some may have to, later on.
    for (int i = 0; i < n; ++i) ASSERT_TRUE((cuts.waiting() >> i & 1) == 0 || plan.ends[gpu(i)] == plan.time());
    sharing += (cuts.waiting() & (cuts.waiting() - 1)) != 0;
  }
  EXPECT_GT(sharing, cases() / 10) << "GPUs hardly ever waited for the same thing";
}

// Where each link serves one GPU, no GPU can end sooner unless another one ends later.
TEST(FlowRandom, WhoCanEndSoonerDoes) {
  std::uint64_t different = 0;
  for (std::uint64_t seed = 1; seed <= cases(); ++seed) {
    SCOPED_TRACE(seed);
    FlowDraw draw(seed);
    const int n = static_cast<int>(draw.between(2, 3));
    const PeerLinks links = draw.links(n, true);
    const Overflow overflow = draw.overflow(n);
    const FlowPlan plan = plan_flow(links, overflow, FlowStrategy::flow);
    ASSERT_TRUE(Cuts(links, overflow, plan.ends).pass());
    for (int i = 0; i < n; ++i) {
      if (overflow.remainder[gpu(i)] == 0) continue;
      // Ends are rounded up to nanoseconds: what the others' links carry in one, this one's to the host must make up
      // for.
      Rate rates = 0;
      for (Rate rate : links.pairs) rates += rate;
      for (Rate rate : links.host) rates += rate;
      const Time slack = static_cast<Time>(rates / links.host[gpu(i)]) + 1;
      std::vector<Time> ends = plan.ends;
      ends[gpu(i)] -= slack;
      ASSERT_TRUE(ends[gpu(i)] < 0 || !Cuts(links, overflow, ends).pass()) << "GPU " << i;
      for (int k = 0; k < n; ++k) different += plan.ends[gpu(k)] > plan.ends[gpu(i)] + slack;
    }
  }
  EXPECT_GT(different, cases() / 10) << "GPUs nearly always ended together";
}

// The path whose slowest link is cheapest, with arcs back, is as good as the least time but for one unit on the slowest
// link: a path that keeps every link within the least time exists until all units are sent.
TEST(FlowRandom, UnitByUnitComesWithinOneUnitOfTheLeastTime) {
  std::uint64_t added_is_worse = 0;
  for (std::uint64_t seed = 1; seed <= cases() / 10; ++seed) {
    SCOPED_TRACE(seed);
    FlowDraw draw(seed);
    const int n = static_cast<int>(draw.between(2, 6));
    const PeerLinks links = draw.links(n, false);
    Overflow overflow = draw.overflow(n);
    const Bytes unit = kMb * draw.between(1, 10);
    const FlowPlan paper = plan_flow(links, overflow, FlowStrategy::flow_paper, {unit, PathCost::slowest});
    const FlowPlan added = plan_flow(links, overflow, FlowStrategy::flow_paper, {unit, PathCost::added});
    const Time least = plan_flow(links, overflow, FlowStrategy::flow).time();
    for (const FlowPlan& plan : {paper, added}) {
      ASSERT_NO_FATAL_FAILURE(check_plan(links, overflow, plan));
      ASSERT_GE(plan.time(), least - 1);
    }
    Rate slowest = links.host_memory > 0 ? links.host_memory : links.host[0];
    for (const auto* rates : {&links.pairs, &links.host, &links.egress, &links.ingress})
      for (Rate rate : *rates)
        if (rate > 0) slowest = std::min(slowest, rate);
    for (Bytes& bytes : overflow.remainder) bytes = (bytes + unit - 1) / unit * unit;
    for (Bytes& bytes : overflow.spare) bytes = bytes / unit * unit;
    const Time in_units = plan_flow(links, overflow, FlowStrategy::flow).time();
    const auto one = static_cast<Time>(unit * 1'000'000'000 / slowest + 2);
    ASSERT_LE(paper.time(), in_units + one);
    added_is_worse += added.time() > in_units + one;
  }
  EXPECT_GT(added_is_worse, 0u);
}

TEST(FlowRandom, EveryPlanSendsEverythingAndNoneIsFasterThanTheLeastTime) {
  for (std::uint64_t seed = 1; seed <= cases() / 10; ++seed) {
    SCOPED_TRACE(seed);
    FlowDraw draw(seed);
    const int n = static_cast<int>(draw.between(1, 8));
    const PeerLinks links = draw.links(n, false);
    const Overflow overflow = draw.overflow(n);
    const FlowPlan least = plan_flow(links, overflow, FlowStrategy::flow);
    ASSERT_NO_FATAL_FAILURE(check_plan(links, overflow, least));
    for (FlowStrategy strategy : {FlowStrategy::local, FlowStrategy::greedy}) {
      const FlowPlan plan = plan_flow(links, overflow, strategy);
      ASSERT_NO_FATAL_FAILURE(check_plan(links, overflow, plan));
      ASSERT_GE(plan.time(), least.time());
    }
    ASSERT_EQ(plan_flow(links, overflow, FlowStrategy::flow).transfers, least.transfers);
  }
}

}  // namespace
}  // namespace ebb::models
