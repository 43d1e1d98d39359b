#pragma once
// The committer: what is complete becomes durable, many objects with one sync.
#include <condition_variable>
#include <map>
#include <thread>
#include <vector>

#include "storage/segments/record_remover.hpp"

namespace ebb::storage {

/// Thread safety: methods with a Locked from any thread; start() and stop() from one.
/// 1. Its thread alone (before it starts the opening one, and after it has ended the closing one) writes headers and
///    drops, breaks, cuts and removes segments, and moves an object on from ready.
/// 2. An object becomes durable when its payload was synced, then its header written, then that synced, then its file
///    found under its name, and an older writing of the same name dropped.
/// 3. Of a segment that is broken no object becomes durable; it is written by drops alone and synced only for those.
class Committer {
 public:
  Committer(StoreContext& context, ObjectTable& table)
      : context_(context), table_(table), remover_(context, table), last_commit_(context.clock.now()) {}

  void start();
  /// After the table was closed: commits all that is complete, and fails the rest. False: it never started.
  bool stop();

  /// If all of it is put and reported: it is committed with the next batch.
  void add_if_complete(const Locked&, const SharedObject& object);
  /// Out of the table already: its record is dropped with the next batch,
  void drop(const Locked&, SharedObject object);
  /// or left as it is on the disk until one of its name is durable.
  void abandon(const Locked&, SharedObject object);
  /// What is complete is committed now; also what is just being reported.
  void commit_now(const Locked&);
  std::uint64_t commits(const Locked&) const { return commits_; }  // calls of that
  /// Whether drops were under way: now they are carried out, and the disk has their room.
  bool await_drops(Locked& lock);

  RecordRemover& remover() { return remover_; }
  const RecordRemover& remover() const { return remover_; }

 private:
  using Objects = std::vector<SharedObject>;
  using Groups = std::map<SharedSegment, Objects>;
  static constexpr std::uint64_t kMostWaiting = 64ull << 20;  // bytes of payload that wait for a sync

  bool is_due(const Locked& lock) const;
  void work();
  void commit_batch(Locked& lock);
  void commit_groups(Groups& groups, Objects& drops, Objects& abandoned);
  static Objects replaced_by(const Objects& complete, Objects& drops);
  Objects refuse_missing(Groups& groups);
  Objects refuse_beside_old(const Objects& complete);
  Objects refuse(const Locked&, const Objects& objects, const Error& why);
  void report_refused(const Objects& refused);
  bool sync_all(Groups& groups);
  Result<void> write_headers(const SharedSegment& segment, const Objects& objects);
  void report(const Objects& objects);
  void end_unfinished();

  StoreContext& context_;
  ObjectTable& table_;
  RecordRemover remover_;
  std::condition_variable wake_;  // the thread: something is due
  std::condition_variable batch_ended_;
  Objects ready_, drops_;  // guarded by the table's lock, as all that follows but for the thread
  Objects abandoned_;      // dropped before one of their name is reported
  std::uint64_t ready_bytes_ = 0;
  std::uint64_t commits_ = 0;
  std::uint64_t batches_begun_ = 0, batches_ended_ = 0;
  std::int64_t last_commit_ = 0;
  bool commit_wanted_ = false;
  std::thread thread_;
};

}  // namespace ebb::storage
