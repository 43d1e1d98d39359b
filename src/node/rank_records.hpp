#pragma once
// The records of a job's store, as one rank reads them while the agent writes them.
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "storage/persistent_storage.hpp"

namespace ebb::node {

/// A history's name in the store, which begins with the rank, and a version.
using RecordKey = std::pair<std::string, Version>;

/// Thread safety: every method may be called from any thread. mutex_ guards what is known of the records; no other lock
/// is taken, and nothing called back, while it is held. refreshing_ lets one thread at a time look for new ones.
/// 1. A record that was there when its version was dropped is not offered again.
class RankRecords {
 public:
  RankRecords(std::uint64_t rank, std::unique_ptr<storage::PersistentStorage> reader);

  storage::PersistentStorage& reader() const { return *reader_; }
  std::string in_store(const std::string& history) const { return prefix_ + history; }
  std::string without_rank(const std::string& history) const { return history.substr(prefix_.size()); }
  /// What was there when the store was opened, without the rank.
  const std::vector<storage::Found>& found() const { return found_; }

  /// The version is written anew.
  void begin(const RecordKey& key);
  void drop(const RecordKey& key);
  /// The reader's number of the newest record. Error damaged: there is none.
  Result<storage::ObjectId> find(const RecordKey& key);
  void refresh();

 private:
  const std::string prefix_;
  const std::unique_ptr<storage::PersistentStorage> reader_;
  std::vector<storage::Found> found_;  // constant
  std::mutex refreshing_, mutex_;
  std::map<RecordKey, storage::ObjectId> newest_;
  std::set<RecordKey> dropped_;  // and not begun again since
};

}  // namespace ebb::node
