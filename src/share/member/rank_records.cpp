#include "share/member/rank_records.hpp"

#include <algorithm>

namespace ebb::share {

RankRecords::RankRecords(std::uint64_t rank, std::unique_ptr<storage::PersistentStorage> reader)
    : prefix_(prefix_of(rank)), reader_(std::move(reader)), found_(reader_->take_found()) {
  for (const storage::Found& found : found_) {
    add(found);
    highest_sequence_ = std::max(highest_sequence_, found.sequence);
  }
}

Result<storage::ObjectId> RankRecords::find(const RecordKey& key, std::uint64_t sequence) {
  for (const bool refreshed : {false, true}) {
    if (refreshed) refresh();
    const std::lock_guard lock(mutex_);
    const auto known = newest_.find(key);
    if (known != newest_.end() && known->second.sequence == sequence) return known->second.object;
  }
  return Error{Errc::damaged, "version " + std::to_string(key.second) + " of \"" + key.first +
                                  "\" is not in the store, where the node's agent has written it"};
}

std::uint64_t RankRecords::newest_after(const RecordKey& key, std::uint64_t after) {
  refresh();
  const std::lock_guard lock(mutex_);
  const auto known = newest_.find(key);
  return known != newest_.end() && known->second.sequence > after ? known->second.sequence : 0;
}

void RankRecords::refresh() {
  const std::lock_guard turn(refreshing_);
  const std::vector<storage::Found> found = reader_->refresh();
  const std::lock_guard lock(mutex_);
  for (const storage::Found& one : found) add(one);
}

}  // namespace ebb::share
