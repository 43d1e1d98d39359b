#pragma once
#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "snapshots/cut.hpp"

namespace ebb::snapshots {

/// The cuts that have not ended, in order. The board's mutex guards it, so nothing here allocates.
/// 1. If one fails, all later ones fail: they may lean on it.
class CutList {
 public:
  explicit CutList(std::size_t most) { cuts_.reserve(most); }

  void add(const std::shared_ptr<Cut>& cut) { cuts_.push_back(cut); }
  bool empty() const { return cuts_.empty(); }
  std::size_t size() const { return cuts_.size(); }
  /// None: it has ended.
  std::shared_ptr<Cut> find(policy::CutIndex index) const;
  /// Into `to`, which has the room: those of `version`, or all.
  void add_cuts(std::optional<Version> version, std::vector<std::shared_ptr<Cut>>& to) const;
  bool any_uncopied() const;
  policy::CutIndex first_index() const { return cuts_.front()->index; }
  /// Those that have not drained fail, and with `uncopied` those that are not `copied`. Returns how many.
  std::uint64_t fail(policy::SnapshotTrouble trouble, bool uncopied);
  std::uint64_t fail_all(policy::SnapshotTrouble trouble);
  /// Failed ones of which nothing is said yet failed for this reason.
  void explain(const std::shared_ptr<const Error>& why);
  /// Those that are `read`, in order, become `copied` while `sure(cut)`.
  template <class Sure>
  void confirm(Sure&& sure) {
    for (const std::shared_ptr<Cut>& cut : cuts_) {
      if (!cut->read || cut->failed || cut->copied) continue;
      if (!sure(*cut)) return;
      cut->copied = true;
    }
  }
  /// The first, if it has failed or can be archived.
  std::shared_ptr<Cut> ready() const;
  std::shared_ptr<Cut> take_first();
  void add_ids(std::vector<storage::SnapshotId>& to) const;  // which has the room

 private:
  std::vector<std::shared_ptr<Cut>> cuts_;
};

}  // namespace ebb::snapshots
