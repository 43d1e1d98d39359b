#pragma once
// The records of a job's store, as one rank reads them while the agent writes them.
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "storage/persistent_storage.hpp"

namespace ebb::share {

/// A history's name in the store, which begins with the rank, and a version.
using RecordKey = std::pair<std::string, Version>;

/// Thread safety: every method may be called from any thread. mutex_ guards what is known of the records; no other lock
/// is taken, and nothing called back, while it is held. refreshing_ lets one thread at a time look for new ones.
/// 1. A record is known by its sequence: one of the same version that was dropped before is never taken for it.
class RankRecords {
 public:
  /// `reader`: of the histories that begin with prefix_of(rank).
  RankRecords(std::uint64_t rank, std::unique_ptr<storage::PersistentStorage> reader);
  static std::string prefix_of(std::uint64_t rank) { return std::to_string(rank) + "/"; }

  storage::PersistentStorage& reader() const { return *reader_; }
  std::string in_store(const std::string& history) const { return prefix_ + history; }
  std::string without_rank(const std::string& history) const { return history.substr(prefix_.size()); }
  /// What was there when the store was opened, without the rank.
  const std::vector<storage::Found>& found() const { return found_; }

  /// The reader's number of the version's record with this sequence. Error damaged: there is none.
  Result<storage::ObjectId> find(const RecordKey& key, std::uint64_t sequence);
  /// The sequence of the version's newest record, if it is higher than `after`; 0: there is none.
  std::uint64_t newest_after(const RecordKey& key, std::uint64_t after);
  /// Of all its records that were there when the store was opened.
  std::uint64_t highest_sequence() const { return highest_sequence_; }
  void refresh();

 private:
  const std::string prefix_;
  const std::unique_ptr<storage::PersistentStorage> reader_;
  std::vector<storage::Found> found_;   // constant
  std::uint64_t highest_sequence_ = 0;  // constant
  std::mutex refreshing_, mutex_;
  struct Newest {
    storage::ObjectId object = 0;
    std::uint64_t sequence = 0;
  };
  void add(const storage::Found& found) {
    newest_[{in_store(found.history), found.version}] = {found.object, found.sequence};
  }
  std::map<RecordKey, Newest> newest_;
};

}  // namespace ebb::share
