#include "planner/links.hpp"

#include <algorithm>
#include <gtest/gtest.h>

#include "planner/link_estimate.hpp"

namespace ebb::policy {
namespace {

std::vector<TierSpec> three() {
  return {{"device", Medium::device, 1 << 20}, {"host", Medium::host, 1 << 20}, {"local", Medium::file, 1 << 20}};
}

std::vector<std::string> hops(const std::vector<TierSpec>& tiers, Endpoint from, Endpoint to) {
  const auto links = make_links(tiers);
  const Route r = route(tiers, links, from, to);
  std::vector<std::string> names;
  for (int h = 0; h < r.hops; ++h) names.push_back(links.at(static_cast<std::size_t>(r.link[h])).name);
  return names;
}

Endpoint tier(int i) { return {Endpoint::tier, static_cast<TierIndex>(i)}; }
using Names = std::vector<std::string>;

TEST(Links, HostMemoryIsReachedDirectlyAndFilesFromElsewhereThroughTheRing) {
  EXPECT_EQ(hops(three(), {}, tier(0)), Names{"app>device"});
  EXPECT_EQ(hops(three(), tier(0), tier(1)), Names{"device>host"});
  EXPECT_EQ(hops(three(), tier(1), tier(2)), Names{"host>local"});
  EXPECT_EQ(hops(three(), tier(1), {}), Names{"host>app"});
  EXPECT_EQ(hops(three(), tier(2), tier(0)), (Names{"local>host", "host>device"}));
  EXPECT_EQ(hops(three(), {}, tier(2)), (Names{"app>host", "host>local"}));
}

TEST(Links, TheRingIsThereWithoutAHostTier) {
  const std::vector<TierSpec> two{{"device", Medium::device, 1 << 20}, {"local", Medium::file, 1 << 20}};
  EXPECT_EQ(hops(two, tier(0), tier(1)), (Names{"device>host", "host>local"}));
}

TEST(Links, AFileTiersReadsAndWritesShareItsDevice) {
  const auto links = make_links(three());
  const auto& down = links.at(static_cast<std::size_t>(find_link(links, "host>local")));
  const auto& up = links.at(static_cast<std::size_t>(find_link(links, "local>host")));
  EXPECT_GE(down.group, 0);
  EXPECT_EQ(down.group, up.group);
  EXPECT_EQ(find_link(links, "app>local"), -1);
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
}  // namespace ebb::policy
