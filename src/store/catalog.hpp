#pragma once
// What a store knows of its histories and of their checkpoints.
#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "planner/recycled.hpp"
#include "storage/persistent_storage.hpp"
#include "store/digests.hpp"
#include "store/handles.hpp"
#include "store/planner_port.hpp"

namespace ebb::store {

/// A checkpoint's bytes in the files of one tier.
struct FileObject {
  storage::ObjectId id = 0;              // 0: there is none
  std::unique_ptr<const Error> refused;  // the storage refuses it: the next attempt is another object
  bool leave = false;                    // it is damaged, and stays on the disk as it is
};

/// What is known of a checkpoint in the files of one tier.
struct InFile {
  enum class Durability : std::uint8_t { pending, durable, failed };

  FileObject object;
  bool listed = false;                          // in the node's pool, as this object
  bool checked = false;                         // all bytes were read and found to be right
  Durability durability = Durability::pending;  // as the tier promises
  std::unique_ptr<const Error> not_durable;     // why the last attempt failed
  storage::ObjectId recovered = 0;              // of an earlier process: its name in the storage
};

/// File tiers that a store has at most.
inline constexpr std::size_t kMostFiles = 3;

/// What is known of it in the files of each tier, by PlannerPort::file_number(). Most stores have one: the others take
/// memory once something is known of them.
class InFiles {
 public:
  InFile& operator[](std::size_t file) {
    if (file == 0) return first_;
    if (!others_) others_ = std::make_unique<Others>();
    return others_->at(file - 1);
  }
  const InFile& operator[](std::size_t file) const {
    static const InFile kNothing;
    return file == 0 ? first_ : others_ ? others_->at(file - 1) : kNothing;
  }
  static constexpr std::size_t size() { return kMostFiles; }

 private:
  using Others = std::array<InFile, kMostFiles - 1>;
  InFile first_;
  std::unique_ptr<Others> others_;
};

/// A checkpoint as the runtime knows it. Errors are rare, and kept out of line: every checkpoint writes a record anew.
struct Record {
  using Sums = std::vector<storage::Checksum>;  // by region

  bool used = false;        // this slot is
  std::uint64_t order = 0;  // of the calls that wrote it, or found it on the disk; no two are equal
  planner::CheckpointRef checkpoint;
  planner::HistoryId history = 0;
  Version version = 0;
  std::shared_ptr<const CheckpointInfo> info;  // none: of an earlier process, and not loaded yet
  bool reserved = false;                       // and not committed yet
  std::weak_ptr<Waitable> future;
  std::unique_ptr<const Error> trouble;  // the last error of a transfer of it

  InFiles files;
  std::uint64_t looked = 0;  // read only: at which of PersistentStorage::changes_seen() it was there still

  std::shared_ptr<const Sums> sums;    // of its regions, for verify_all
  std::shared_ptr<const Check> check;  // while the memory that was committed is its replica
  bool written_to = false;             // that memory was, since

  /// The fastest file tier, not faster than `from`, where an earlier process left it.
  std::optional<std::size_t> recovered_in(std::size_t from = 0) const {
    return first(from, [](const InFile& file) { return file.recovered != 0; });
  }
  /// Likewise: where it is durable, and there still.
  std::optional<std::size_t> durable_in(std::size_t from = 0) const {
    return first(
        from, [](const InFile& file) { return file.durability == InFile::Durability::durable && file.object.id != 0; });
  }

 private:
  template <class Is>
  std::optional<std::size_t> first(std::size_t from, Is&& is) const {
    for (; from < InFiles::size(); ++from)
      if (is(files[from])) return from;
    return {};
  }
};

/// The one table of checkpoints, and the names and numbers of histories.
///
/// Thread safety: every method takes the port's Locked. A Record* is good until the mutex is given up or a checkpoint
/// is added.
/// 1. A checkpoint has one record, by the planner's slot, from the event with which the planner took it until the slot
///    is another checkpoint's. A reference of another generation finds nothing.
/// 2. A name (history and version) refers to what was written of it last, or says why that is gone. Whether it exists
///    only the planner knows: live().
/// 3. A history's number is another's only when nothing of it is left: no name, no handle, no plan.
class Catalog {
 public:
  /// `persistent`: what is written to a file outlives the process.
  Catalog(PlannerPort& port, bool persistent);

  // --- histories
  using InHandPtr = std::shared_ptr<const InHand>;
  std::pair<planner::HistoryId, InHandPtr> open_history(const Locked& locked, const std::string& name, Order order);
  /// Makes it if it is not there.
  planner::HistoryId number_of(const Locked& locked, const std::string& name);
  void set_order(const Locked& locked, planner::HistoryId number, Order order);
  std::size_t histories(const Locked& /*locked*/) const { return histories_.size(); }
  const std::string& name_of(const Locked& /*locked*/, planner::HistoryId history) const {
    return *histories_[history].name;
  }
  const InHandPtr& in_hand(const Locked& /*locked*/, planner::HistoryId history) const {
    return histories_[history].in_hand;
  }
  /// The names that begin with `prefix` and have versions, ascending.
  std::vector<std::string> names(const Locked& locked, std::string_view prefix) const;
  /// Something was written or planned in the history, so that it has to be remembered.
  void mark_used(const Locked& /*locked*/, planner::HistoryId history) { histories_[history].blank = false; }
  /// Error invalid_argument: the name is too long for a file.
  Result<void> check_name(const Locked& locked, planner::HistoryId history) const;
  /// "version 3 of history "x"", for messages.
  std::string key_text(const Locked& locked, planner::HistoryId history, Version version) const;

  // --- checkpoints
  /// A new record of a checkpoint that the planner has just taken. Throws std::logic_error if it has not.
  Record& add(const Locked& locked, planner::HistoryId history, Version version);
  Record* find(const Locked& locked, planner::CheckpointRef checkpoint);
  Record* find(const Locked& locked, planner::HistoryId history, Version version);
  std::deque<Record>& records(const Locked& /*locked*/) { return records_; }
  /// Whether the version still names this record: it was neither dropped nor consumed.
  bool live(const Locked& locked, const Record& record) const;
  /// What describes the record: that of the last one of its history, if it says the same, so that many share one.
  void describe(const Locked& locked, Record& record, std::shared_ptr<const CheckpointInfo> info);
  /// All bytes of the checkpoint are in the store: it can be asked for. Another thread may have consumed or dropped it
  /// already, and even written the version anew.
  void set_written(const Locked& locked, planner::CheckpointRef checkpoint);
  /// Calls `f(version, checkpoint)` for what was written in `history` and is there.
  template <class F>
  void for_each_written(const Locked& locked, planner::HistoryId history, F&& f) const {
    for (const auto& [version, checkpoint] : histories_[history].written) {
      if (port_.planner(locked).find(history, version) == checkpoint) f(version, checkpoint);
    }
  }
  /// The planner says that no attempt to move it is left.
  void take_failure(const Locked& locked, const planner::Failure& failure);
  /// A checkpoint whose call has returned is lost: every later call that asks for the version gets this error.
  void mark_lost(const Locked& locked, planner::HistoryId history, Version version, const Error& why);
  const Error* lost(const Locked& locked, planner::HistoryId history, Version version) const;
  /// The error of a wait for checkpoints of which the memory of one was written to after its commit.
  std::optional<Error> overwritten(const Locked& locked, planner::HistoryId history, std::optional<Version> only) const;
  void forget_if_gone(const Locked& locked, planner::HistoryId history, Version version);
  void forget_written(const Locked& /*locked*/, planner::HistoryId history, Version version) {
    histories_[history].written.erase(version);
  }
  /// Forgets versions that were dropped, and why they were lost.
  void forget(const Locked& locked, planner::HistoryId history, std::optional<Version> version);
  /// The error of a call that the planner refused with this answer.
  Error refusal(const Locked& locked, planner::HistoryId history, Version version, const planner::Answer& answer);

 private:
  struct Lost {
    Error why;
    bool overwritten = false;  // its memory was written to after it had been committed
  };
  struct History {
    const std::string* name = nullptr;  // in history_numbers_
    Order order = Order::none;
    bool blank = true;  // since it was made, or dropped, nothing was written or hinted
    InHandPtr in_hand = std::make_shared<const InHand>();
    std::shared_ptr<const CheckpointInfo> last_info;                    // of the last record that was described
    planner::RecycledHashMap<Version, planner::CheckpointRef> written;  // some may be gone
  };
  using LostMap = std::map<std::pair<planner::HistoryId, Version>, Lost>;
  std::pair<LostMap::const_iterator, LostMap::const_iterator> lost_of(planner::HistoryId history) const {
    return {lost_.lower_bound({history, INT64_MIN}), lost_.upper_bound({history, INT64_MAX})};
  }
  bool forget_history(const Locked& locked, planner::HistoryId history);
  void forget_histories(const Locked& locked);

  PlannerPort& port_;
  const bool persistent_;
  // All below by the port's mutex.
  std::deque<Record> records_;  // by slot
  std::uint64_t next_order_ = 1;
  std::vector<History> histories_;  // by number
  LostMap lost_;                    // what there was of a version is gone or damaged
  std::map<std::string, planner::HistoryId, std::less<>> history_numbers_;
  std::vector<planner::HistoryId> free_histories_;  // numbers that no history has
  std::size_t look_for_dropped_at_ = 16;            // so many names: the next new one looks which can go
};

}  // namespace ebb::store
