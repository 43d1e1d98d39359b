#include "node/rank_records.hpp"

namespace ebb::node {

RankRecords::RankRecords(std::uint64_t rank, std::unique_ptr<storage::PersistentStorage> reader)
    : prefix_(std::to_string(rank) + "/"), reader_(std::move(reader)) {
  for (storage::Found& found : reader_->found()) {
    newest_[{found.history, found.version}] = found.object;
    if (!found.history.starts_with(prefix_)) continue;
    found_.push_back({found.object, without_rank(found.history), found.version, found.bytes});
  }
}

void RankRecords::begin(const RecordKey& key) {
  {
    const std::lock_guard lock(mutex_);
    if (dropped_.erase(key) == 0) return;
  }
  refresh();  // finds what the agent wrote of it before
  const std::lock_guard lock(mutex_);
  newest_.erase(key);
}

void RankRecords::drop(const RecordKey& key) {
  const std::lock_guard lock(mutex_);
  newest_.erase(key);
  dropped_.insert(key);
}

Result<storage::ObjectId> RankRecords::find(const RecordKey& key) {
  for (const bool refreshed : {false, true}) {
    if (refreshed) refresh();
    const std::lock_guard lock(mutex_);
    const auto known = newest_.find(key);
    if (known != newest_.end()) return known->second;
  }
  return Error{Errc::damaged, "version " + std::to_string(key.second) + " of \"" + key.first +
                                  "\" is not in the store, where the node's agent has written it"};
}

void RankRecords::refresh() {
  const std::lock_guard turn(refreshing_);
  const std::vector<storage::Found> found = reader_->refresh();
  const std::lock_guard lock(mutex_);
  for (const storage::Found& one : found) newest_[{one.history, one.version}] = one.object;
}

}  // namespace ebb::node
