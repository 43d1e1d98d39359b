#pragma once
// The versions of one name: which of them this job writes, as which editions, and which all ranks have.
#include <functional>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "ebbtide/group.hpp"
#include "veloc/editions.hpp"
#include "veloc/peers.hpp"

namespace ebb::veloc {

/// Thread safety: none.
class Series {
 public:
  explicit Series(GroupHistory history) : history_(std::move(history)) {}
  GroupHistory& history() { return history_; }

  struct Next {
    Version stored = 0;
    bool newer = false;                 // it is the first of a newer edition
    std::optional<int> replaces_up_to;  // of what an earlier job left
  };
  /// A version is written: as which of the store. What it takes the place of stays until it, or a later one, is durable
  /// on every rank; in `persistent`, if not all are `sent` there. Collective, if it is the job's first.
  Result<Next> begin(int version, bool sent, Peers& peers);
  /// As which of the store a version would be written that this job has yet to write, once it has written one.
  std::optional<Version> ahead(int version) const;
  /// The newest that is intact on every rank, of those that `counts` says. What this job wrote is not read to see that;
  /// `written` is a version that it may have written. Collective.
  Result<std::optional<Version>> find(const std::function<bool(Version)>& counts, std::optional<Version> written);
  /// Whether this rank still has what versions of this job take the place of.
  Result<bool> replaces() const;
  /// The same, of one version that this job has written.
  Result<bool> replaces(Version stored) const;
  /// Collective.
  Result<void> drop();

 private:
  Result<void> go_on(Peers& peers);

  mutable GroupHistory history_;
  Version edition_ = 0;                  // of the versions that this job writes
  std::optional<Version> first_, last_;  // that this job has written; the last may be what it went on from
  std::set<Version> left_;               // by an earlier job here, and not on every rank
  std::vector<Version> older_;           // which the next that is sent takes the place of
};

}  // namespace ebb::veloc
