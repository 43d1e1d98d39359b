#include "veloc/series.hpp"

#include <algorithm>
#include <limits>
#include <vector>

namespace ebb::veloc {

// The job goes on from what all ranks have. Where they have nothing in common, one may miss its directory: then nothing
// is dropped, but for what has the number of a version that is written.
Result<void> Series::go_on(Peers& peers) {
  History& mine = history_.mine();
  const auto newest = history_.latest();
  if (!newest) return newest.error();
  if (*newest) {
    if (auto from = history_.resume(**newest); !from) return from.error();
    last_ = **newest;
    edition_ = edition_of(**newest);
  }
  const auto stored = mine.versions();
  if (!stored) return stored.error();
  if (!*newest) {
    const auto above = peers.least(stored->empty() ? 0 : -(edition_of(stored->back()) + 1));
    if (!above) return above.error();
    edition_ = -*above;
    left_ = {stored->begin(), stored->end()};
    return {};
  }
  for (const Version version : replaced(*stored))  // a job was killed before it had dropped them
    if (auto dropped = mine.drop(version); !dropped) return dropped;
  return {};
}

Result<Series::Next> Series::begin(int version, bool sent, Peers& peers) {
  const bool begins = !first_;
  if (begins)
    if (auto gone_on = go_on(peers); !gone_on) return gone_on.error();
  const bool again = last_ && stored_as(edition_, version) <= *last_;
  if (again) ++edition_;
  const Version stored = stored_as(edition_, version);
  std::optional<int> up_to;
  if (again) {
    const auto all = history_.mine().versions();
    if (!all) return all.error();
    for (const Version each : *all) {
      if (number_of(each) < version) continue;
      older_.push_back(each);
      up_to = std::max(up_to.value_or(version), number_of(each));
    }
  }
  std::erase_if(left_, [&](Version each) {
    if (number_of(each) != version) return false;
    older_.push_back(each);
    return true;
  });
  if (sent && !older_.empty()) history_.replace(stored, std::exchange(older_, {}));
  if (begins) first_ = stored;
  last_ = stored;
  return Next{stored, again || (begins && edition_ > 0), begins ? up_to : std::nullopt};
}

std::optional<Version> Series::ahead(int version) const {
  const Version stored = stored_as(edition_, version);
  return first_ && stored > *last_ ? std::optional(stored) : std::nullopt;
}

Result<std::optional<Version>> Series::find(const std::function<bool(Version)>& counts,
                                            std::optional<Version> written) {
  const Version ours = first_.value_or(std::numeric_limits<Version>::max());
  if (written && (*written < ours || !history_.mine().info(*written))) written = {};  // all are looked through
  return history_.latest_by([&](Version bound) {
    return written && *written <= bound ? Result(written) : newest(history_.mine(), counts, bound, ours);
  });
}

Result<bool> Series::replaces() const {
  if (!first_) return false;
  const auto stored = history_.mine().versions();
  return stored ? Result(!replaced(*stored).empty()) : stored.error();
}

Result<bool> Series::replaces(Version stored) const {
  const auto all = history_.mine().versions();
  if (!all) return all.error();
  return std::ranges::any_of(*all,
                             [stored](Version each) { return each < stored && number_of(each) == number_of(stored); });
}

Result<void> Series::drop() {
  edition_ = 0;
  first_ = last_ = {};
  left_.clear();
  older_.clear();
  return history_.drop();
}

}  // namespace ebb::veloc
