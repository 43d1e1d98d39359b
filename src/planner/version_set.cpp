#include "planner/version_set.hpp"

#include <iterator>

namespace ebb::planner {

bool VersionSet::contains(Version version) const {
  const auto after = ranges_.upper_bound(version);
  return after != ranges_.begin() && std::prev(after)->second >= version;
}

void VersionSet::insert(Version version) {
  const auto after = ranges_.upper_bound(version);
  const bool follows = after != ranges_.end() && version == after->first - 1;
  if (after != ranges_.begin()) {
    const auto before = std::prev(after);
    if (before->second >= version) return;
    if (before->second == version - 1) {
      before->second = follows ? after->second : version;
      if (follows) ranges_.erase(after);
      return;
    }
  }
  const Version last = follows ? after->second : version;
  if (follows) ranges_.erase(after);
  ranges_.emplace(version, last);
  if (ranges_.size() > most_) ranges_.erase(ranges_.begin());
}

void VersionSet::erase(Version version) {
  const auto after = ranges_.upper_bound(version);
  if (after == ranges_.begin()) return;
  const auto range = std::prev(after);
  const auto [first, last] = *range;
  if (last < version) return;
  if (first == version) {
    ranges_.erase(range);
  } else {
    range->second = version - 1;
  }
  if (last != version) ranges_.emplace(version + 1, last);
  if (ranges_.size() > most_) ranges_.erase(ranges_.begin());
}

}  // namespace ebb::planner
