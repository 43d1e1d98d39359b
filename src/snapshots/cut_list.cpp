#include "snapshots/cut_list.hpp"

namespace ebb::snapshots {

std::vector<std::shared_ptr<Cut>> CutList::in_flight(std::optional<Version> version) const {
  std::vector<std::shared_ptr<Cut>> found;
  found.reserve(kCutsAtOnce + 1);
  const std::lock_guard lock(board_->mutex);
  for (const std::shared_ptr<Cut>& cut : cuts_)
    if (cut->version == version.value_or(cut->version)) found.push_back(cut);
  return found;
}

std::vector<storage::SnapshotId> CutList::ids() const {
  std::vector<storage::SnapshotId> ids;
  ids.reserve(kCutsAtOnce + 1);
  const std::lock_guard lock(board_->mutex);
  for (const std::shared_ptr<Cut>& cut : cuts_) ids.push_back(cut->id);
  return ids;
}

std::shared_ptr<Cut> CutList::next_to_archive() const {
  std::unique_lock lock(board_->mutex);
  board_->changed.wait(lock, [&] { return stopped_ || ready(); });
  return ready();
}

bool CutList::wait_down_to(std::size_t at_most, std::chrono::milliseconds limit, std::uint64_t ask,
                           std::shared_ptr<const Error>& held_up) const {
  std::unique_lock lock(board_->mutex);
  const auto over = [&] { return stopped_ || cuts_.size() <= at_most; };
  board_->changed.wait_for(lock, limit, [&] { return over() || board_->held_up_since(ask) != nullptr; });
  if (over()) return true;
  held_up = board_->held_up_since(ask);
  return false;
}

std::shared_ptr<Cut> CutList::find(planner::CutIndex index) const {
  for (const std::shared_ptr<Cut>& cut : cuts_)
    if (cut->index == index) return cut;
  return {};
}

bool CutList::any_uncopied() const {
  return std::ranges::any_of(cuts_, [](const auto& cut) { return !cut->copied; });
}

std::uint64_t CutList::fail(planner::SnapshotTrouble trouble, bool uncopied) {
  std::uint64_t count = 0;
  bool failed = false;
  for (const std::shared_ptr<Cut>& cut : cuts_) {
    failed = failed || cut->failed || !cut->drained || (uncopied && !cut->copied);
    if (!failed || cut->failed) continue;
    cut->failed = true;
    cut->copied = false;
    cut->trouble = trouble;
    ++count;
  }
  return count;
}

std::uint64_t CutList::fail_all(planner::SnapshotTrouble trouble) {
  if (cuts_.empty()) return 0;
  const bool first = !std::exchange(cuts_.front()->failed, true);
  if (first) cuts_.front()->trouble = trouble;
  cuts_.front()->copied = false;
  return first + fail(trouble, true);
}

void CutList::explain(const std::shared_ptr<const Error>& why) {
  for (const std::shared_ptr<Cut>& cut : cuts_)
    if (cut->failed && !cut->error) cut->error = why;
}

std::shared_ptr<Cut> CutList::ready() const {
  if (cuts_.empty()) return {};
  const Cut& first = *cuts_.front();
  return first.failed || (first.copied && first.drained) ? cuts_.front() : nullptr;
}

std::shared_ptr<Cut> CutList::take_first() {
  std::shared_ptr<Cut> first = std::move(cuts_.front());
  cuts_.erase(cuts_.begin());
  return first;
}

}  // namespace ebb::snapshots
