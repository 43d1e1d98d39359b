#include "snapshots/cut_list.hpp"

namespace ebb::snapshots {

std::shared_ptr<Cut> CutList::find(policy::CutIndex index) const {
  for (const std::shared_ptr<Cut>& cut : cuts_)
    if (cut->index == index) return cut;
  return {};
}

void CutList::add_cuts(std::optional<Version> version, std::vector<std::shared_ptr<Cut>>& to) const {
  for (const std::shared_ptr<Cut>& cut : cuts_)
    if (cut->version == version.value_or(cut->version)) to.push_back(cut);
}

bool CutList::any_uncopied() const {
  return std::ranges::any_of(cuts_, [](const auto& cut) { return !cut->copied; });
}

std::uint64_t CutList::fail(policy::SnapshotTrouble trouble, bool uncopied) {
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

std::uint64_t CutList::fail_all(policy::SnapshotTrouble trouble) {
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

void CutList::add_ids(std::vector<storage::SnapshotId>& to) const {
  for (const std::shared_ptr<Cut>& cut : cuts_) to.push_back(cut->id);
}

}  // namespace ebb::snapshots
