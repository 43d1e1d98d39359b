#pragma once
// The committer makes complete objects persistent, many with one sync.
#include <condition_variable>
#include <map>
#include <thread>
#include <vector>

#include "storage/segments/record_remover.hpp"

namespace ebb::storage {

/// Thread safety: methods with a TableLocked from any thread; start() and stop() from one.
/// 1. Only its thread (before it starts the opening one, after it has ended the closing one) writes headers and
///    tombstones, fails, truncates and removes segments, and moves an object on from ready.
/// 2. An object becomes persistent when, in this order, its payload is synced, its header is written and synced, its
///    file is found under its name, and an older record of the same version is dropped.
/// 3. Compact records are placed and written with their payloads when they are committed, each block once: nothing that
///    is durable is written again but heads that say that a record is dropped.
/// 4. No object of a broken segment becomes persistent; only tombstones are written to it and synced.
class Committer {
 public:
  Committer(StoreContext& context, ObjectTable& table)
      : context_(context), table_(table), remover_(context, table), last_commit_(context.clock.now()) {}

  void start();
  /// After the table is closed: commits complete objects and fails the others. False: it was never started.
  bool stop();

  /// Adds the object to the next batch if all of it has been put and reported.
  void add_if_complete(const TableLocked&, const SharedObject& object);
  /// For objects already out of the table. The record is dropped with the next batch,
  void drop(const TableLocked&, SharedObject object);
  /// or left on disk until a newer one of its version is persistent.
  void abandon(const TableLocked&, SharedObject object);
  /// Commits complete objects now, including those whose last put is being reported.
  void commit_now(const TableLocked&);
  std::uint64_t commits(const TableLocked&) const { return commits_; }  // calls of commit_now()
  /// If drops are pending, waits for them and returns true: the disk has their space back.
  bool await_drops(TableLocked& lock);
  std::uint64_t drops(const TableLocked&) const { return drops_so_far_; }
  std::uint64_t drops_done(const TableLocked&) const { return drops_done_; }
  /// As in PersistentStorage.
  std::uint64_t unreleased(const TableLocked&) const { return unreleased_; }

  RecordRemover& remover() { return remover_; }
  const RecordRemover& remover() const { return remover_; }

 private:
  using Objects = std::vector<SharedObject>;
  using Groups = std::map<SharedSegment, Objects>;

  planner::Time due(const TableLocked& lock) const;
  void work();
  void commit_batch(TableLocked& lock);
  void commit_groups(Groups& groups, Objects& drops, Objects& abandoned);
  static Objects replaced_by(const Objects& complete, Objects& drops);
  Objects refuse_missing(Groups& groups);
  Objects refuse_beside_old(const Objects& complete);
  Objects refuse(const TableLocked&, const Objects& objects, const Error& why);
  void report_refused(const Objects& refused);
  bool sync_payloads(Groups& groups);
  void sync_all(Groups& groups);
  bool sync(const SharedSegment& segment);
  Result<void> write_headers(const SharedSegment& segment, const Objects& objects);
  void place_compact(const SharedSegment& segment, const Objects& objects);
  static void end_block(SegmentState& segment, StoredObject& last);
  Result<void> write_compact(const SharedSegment& segment, const Objects& objects, std::int64_t now);
  Result<void> write_large(const SharedSegment& segment, const Objects& objects, std::int64_t now);
  void set_written(StoredObject& object, const RecordHead& head);
  void report(const Objects& objects);
  void end_unfinished();

  StoreContext& context_;
  ObjectTable& table_;
  RecordRemover remover_;
  std::condition_variable wake_;  // wakes the thread: something is due
  std::condition_variable batch_ended_;
  Objects ready_, drops_;  // guarded by the table's lock, as are the fields below except thread_
  Objects abandoned_;      // dropped once a newer one of their version is complete
  std::uint64_t ready_bytes_ = 0;
  std::uint64_t commits_ = 0;
  std::uint64_t drops_so_far_ = 0, drops_done_ = 0;
  std::uint64_t unreleased_ = 0;
  std::uint64_t batches_begun_ = 0, batches_ended_ = 0;
  std::int64_t last_commit_ = 0;
  bool commit_wanted_ = false;
  std::thread thread_;
};

}  // namespace ebb::storage
