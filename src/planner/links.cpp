#include "planner/links.hpp"

#include <stdexcept>

namespace ebb::policy {
namespace {

bool near(const std::string& node, const std::vector<TierSpec>& tiers) {  // the application or a device tier
  if (node == "app") return true;
  for (const TierSpec& t : tiers)
    if (t.name == node) return t.medium == Medium::device;
  return false;
}

bool connected(const std::string& a, const std::string& b, const std::vector<TierSpec>& tiers) {
  if (a == "host" || b == "host") return true;
  return near(a, tiers) && near(b, tiers) && a != b;
}

std::string node_of(const std::vector<TierSpec>& tiers, Endpoint e) {
  if (e.kind == Endpoint::application) return "app";
  if (e.kind == Endpoint::ring) return "host";
  const TierSpec& t = tiers.at(static_cast<std::size_t>(e.index));
  return t.medium == Medium::host ? "host" : t.name;
}

double default_rate(const std::string& a, const std::string& b, const std::vector<TierSpec>& tiers) {
  for (const TierSpec& t : tiers)
    if (t.medium == Medium::file && (t.name == a || t.name == b)) return 1.5e9;
  return 8e9;
}

}  // namespace

std::vector<LinkSpec> make_links(const std::vector<TierSpec>& tiers) {
  std::vector<std::string> nodes{"app", "host"};
  int host_tiers = 0;
  for (const TierSpec& t : tiers) {
    if (t.medium == Medium::host)
      ++host_tiers;
    else
      nodes.push_back(t.name);
  }
  std::vector<LinkSpec> links;
  int group = 0;
  for (std::size_t i = 0; i < nodes.size(); ++i)
    for (std::size_t j = i + 1; j < nodes.size(); ++j) {
      if (!connected(nodes[i], nodes[j], tiers)) continue;
      const bool file = default_rate(nodes[i], nodes[j], tiers) < 8e9;
      for (const auto& [a, b] : {std::pair{nodes[i], nodes[j]}, std::pair{nodes[j], nodes[i]}}) {
        LinkSpec link;
        link.name = a + ">" + b;
        link.bytes_per_s = default_rate(a, b, tiers);
        link.group = file ? group : -1;
        links.push_back(link);
      }
      if (file) ++group;  // a file tier's reads and writes share its device
    }
  if (host_tiers > 1) links.push_back({.name = "host>host", .bytes_per_s = 8e9});
  return links;
}

int find_link(const std::vector<LinkSpec>& links, std::string_view name) {
  for (std::size_t i = 0; i < links.size(); ++i)
    if (links[i].name == name) return static_cast<int>(i);
  return -1;
}

Route route(const std::vector<TierSpec>& tiers, const std::vector<LinkSpec>& links, Endpoint from, Endpoint to) {
  const std::string a = node_of(tiers, from), b = node_of(tiers, to);
  auto link = [&](const std::string& x, const std::string& y) {
    const int found = find_link(links, x + ">" + y);
    if (found < 0) throw std::logic_error("machine without a link " + x + ">" + y);
    return found;
  };
  if (connected(a, b, tiers)) return {1, {link(a, b), -1}};
  return {2, {link(a, "host"), link("host", b)}};
}

}  // namespace ebb::policy
