#include "veloc/editions.hpp"

#include <algorithm>
#include <ranges>

namespace ebb::veloc {

Result<std::optional<Version>> newest(History& history, const std::function<bool(Version)>& counts, Version bound,
                                      Version ours) {
  const auto stored = history.versions();
  if (!stored) return stored.error();
  for (auto at = stored->rbegin(); at != stored->rend();) {
    if (*at > bound || !counts(*at)) {
      ++at;
      continue;
    }
    if (*at >= ours) return std::optional(*at);
    const auto intact = history.latest(*at);
    if (!intact || !*intact || **intact == *at) return intact;
    while (at != stored->rend() && *at > **intact) ++at;  // damaged ones
  }
  return std::optional<Version>();
}

std::vector<Version> replaced(const std::vector<Version>& stored) {
  std::vector<Version> all;
  std::optional<Version> edition;                       // of those looked at
  Version least = kVelocEdition, least_before = least;  // above every number
  for (const Version version : std::views::reverse(stored)) {
    if (edition != edition_of(version)) least_before = least, edition = edition_of(version);
    if (number_of(version) >= least_before) all.push_back(version);
    least = std::min<Version>(least, number_of(version));
  }
  return all;
}

Result<Version> Editions::newest_of(History& history, int number) {
  if (!read_) {
    const auto stored = history.versions();
    if (!stored) return stored.error();
    newer_.clear();
    for (const Version version : *stored) written(version);
    read_ = true;
  }
  const auto found = newer_.find(number);
  return found == newer_.end() ? stored_as(0, number) : found->second;
}

}  // namespace ebb::veloc
