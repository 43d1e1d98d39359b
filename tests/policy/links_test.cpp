#include "policy/links.hpp"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace ebb::policy
