#pragma once
#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "snapshots/cut.hpp"

namespace ebb::snapshots {

/// The cuts of a store that have not ended, in order.
///
/// Thread safety: every method may be called from any thread; one that says "locked" is called with the board's mutex
/// held, and allocates and frees nothing. The others take it.
/// 1. If a cut fails, all later ones fail: they may lean on it.
class CutList {
 public:
  static constexpr std::size_t kCutsAtOnce = 8;

  explicit CutList(std::shared_ptr<Board> board) : board_(std::move(board)) { cuts_.reserve(kCutsAtOnce + 1); }
  const std::shared_ptr<Board>& board() const { return board_; }

  /// Those of `version`, or all.
  std::vector<std::shared_ptr<Cut>> in_flight(std::optional<Version> version) const;
  std::vector<storage::SnapshotId> ids() const;
  /// Waits until the oldest cut can be archived or has failed; null: stop() was called.
  std::shared_ptr<Cut> next_to_archive() const;
  /// Returns once `at_most` are in flight, or stop() was called. False: the time limit passed first, or they are held
  /// up, as a wait that has asked learns.
  bool wait_down_to(std::size_t at_most, std::chrono::milliseconds limit, std::uint64_t ask,
                    std::shared_ptr<const Error>& held_up) const;

  void add(const std::shared_ptr<Cut>& cut) { cuts_.push_back(cut); }     // locked
  bool empty() const { return cuts_.empty(); }                            // locked
  std::shared_ptr<Cut> find(planner::CutIndex index) const;               // locked; null: it has ended
  bool any_uncopied() const;                                              // locked
  planner::CutIndex first_index() const { return cuts_.front()->index; }  // locked
  std::shared_ptr<Cut> take_first();                                      // locked
  void stop() { stopped_ = true, board_->changed.notify_all(); }          // locked
  /// Cuts that have not drained fail, and with `uncopied` those that are not `copied`. Returns how many. Locked.
  std::uint64_t fail(planner::SnapshotTrouble trouble, bool uncopied);
  std::uint64_t fail_all(planner::SnapshotTrouble trouble);  // locked
  /// Sets the error of failed cuts that have none yet. Locked.
  void explain(const std::shared_ptr<const Error>& why);
  /// Cuts that are `read`, in order, become `copied` while `sure(cut)`. Locked.
  template <class Sure>
  void confirm(Sure&& sure) {
    for (const std::shared_ptr<Cut>& cut : cuts_) {
      if (!cut->read || cut->failed || cut->copied) continue;
      if (!sure(*cut)) return;
      cut->copied = true;
    }
  }

 private:
  std::shared_ptr<Cut> ready() const;

  const std::shared_ptr<Board> board_;
  std::vector<std::shared_ptr<Cut>> cuts_;  // by the mutex
  bool stopped_ = false;                    // by the mutex
};

}  // namespace ebb::snapshots
