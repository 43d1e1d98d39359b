#pragma once
// Writes what the processes of a pool have handed over to the store, in turns by bytes.
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "os/clock.hpp"
#include "os/files.hpp"
#include "planner/link_estimate.hpp"
#include "planner/overflow_rule.hpp"
#include "planner/write_turns.hpp"
#include "share/messages.hpp"
#include "share/pool/handover_list.hpp"
#include "storage/persistent_storage.hpp"

namespace ebb::share {

/// Thread safety: one thread, the agent's, calls every method. The storage's threads add to an inbox that mutex_
/// guards, and then call `wake`.
/// 1. An object is begun when it is whole, and its bytes in the pool are read until it is written or has failed.
/// 2. Members take turns (WriteTurns); one that has asked for a commit is in a hurry until nothing of it is left.
/// 3. No more than kMostPuts transfers to the disk are under way, so that a member that comes late waits for no more
///    than these; and kMostCopies to the page cache, which are processors' work.
/// 4. An object in the pool that the disk refuses is delayed, and tried again: when a drop may have made room, when a
///    commit is asked for, and from time to time (planner::try_again()). It ends earlier only if it is dropped, or its
///    version is handed over anew.
/// 5. A version that was handed over anew ends after what it replaces. Otherwise an agent that takes over in between
///    would write the older one again, as the newer record.
/// 6. What a process that has ended left in the pool stays in the list until it is durable: nobody needs its memory.
class ObjectWriter {
 public:
  static constexpr std::size_t kMostPuts = 16, kMostCopies = 4;
  static constexpr std::uint64_t kPutBytes = 4 << 20;

  /// `slabs`: all slabs of the pool, at one address.
  ObjectWriter(const std::byte* slabs, const PoolShape& shape, os::Clock& clock, std::function<void()> wake)
      : slabs_(slabs), shape_(shape), clock_(clock), wake_(std::move(wake)) {}
  ~ObjectWriter() { stop(); }
  ObjectWriter(const ObjectWriter&) = delete;

  /// A pool of memory alone is never opened: then add(), add_piece() and drop() are not called.
  Result<void> open(os::Files& files, storage::PersistentOptions options);

  /// An object that is complete and durable, or has failed: `error`. With `piece`, only that piece of it was written.
  /// With `delayed`, it has not ended: the disk refused it, for now. With `written`, neither: it survives a kill, and
  /// its memory is read no more.
  struct Ended {
    Member member;
    std::uint64_t object = 0;
    std::vector<std::uint64_t> entries;
    Error error;
    std::uint64_t sequence = 0;  // of its record
    std::optional<std::uint64_t> piece = {};
    bool delayed = false;
    bool written = false;
  };
  void add(Member member, const WholeObject& object);
  /// A part of an object that is not in the pool: its bytes are read until its `piece` has ended.
  void add_piece(Member member, const message::Staged& piece, const std::byte* memory);
  /// The member's process has ended (invariant 6). The objects of which pieces are missing never will be complete.
  void end_member(Member member);
  /// As message::Drop.
  void drop(Member member, const message::Drop& drop);
  void commit(Member member);
  /// Nothing more comes of a member, and nothing of it is known any more.
  void forget(Member member);
  /// What may go through the page cache: nothing, unless this was called.
  void allow_overflow(std::uint64_t memory_left, double stalled) {
    beside_.left = memory_left;
    beside_.stalled = stalled;
  }
  /// Bytes of the pool that a member may fill.
  void set_room(Member member, std::uint64_t bytes) { rooms_[bits(member)] = bytes; }
  /// At which the store's disk takes what is written, as far as it was seen.
  double bytes_per_s() const { return disk_.bytes_per_s(); }
  /// The counts go on from those of an agent before this one.
  void go_on_from(const PoolProgress& before) {
    written_ = before.written;
    lost_ = before.lost;
  }
  PoolProgress progress() const;
  /// Takes what the storage has reported, gives it more, and returns what has ended.
  std::vector<Ended> run();
  /// When run() is to be called next, though nothing comes.
  planner::Time due() const { return commit_at_; }
  /// Nothing of this member is left to be written.
  bool idle(Member member) const;
  /// An object of this number is being written.
  bool has(Member member, storage::ObjectId number) const;
  /// An object is being written whose pieces this agent alone has.
  bool has_pieces() const;
  /// Of the storage.
  std::uint64_t drops() const { return storage_ ? storage_->drops() : 0; }
  std::uint64_t drops_done() const { return storage_ ? storage_->drops_done() : 0; }
  /// Nothing is left but what the disk refuses.
  bool idle() const;
  /// Why nothing more can be written of this member now; null: something can, or nothing is left.
  const Error* stuck(Member member) const;
  /// Ends the transfers under way, and closes the store. Objects that are not durable stay in the list.
  void stop();

 private:
  using ObjectId = storage::ObjectId;
  using Key = std::pair<std::string, Version>;
  static std::uint64_t bits(Member member) { return std::uint64_t{member.slot} << 32 | member.generation; }
  std::uint64_t room_of(Member member) const {
    const auto found = rooms_.find(bits(member));
    return found == rooms_.end() ? 0 : found->second;
  }
  struct Extent {
    const std::byte* memory = nullptr;
    std::uint64_t bytes = 0;
  };
  struct Object {
    Member member;
    std::uint64_t number = 0;
    WholeObject whole;  // empty, if it comes in pieces
    std::shared_ptr<const storage::Description> description;
    std::vector<Extent> extents;  // not yet given to the storage
    std::uint64_t total = 0, given = 0;
    std::size_t puts = 0;  // under way
    bool in_pieces = false;
    Error error;
    std::optional<bool> drop;  // once it has ended; true: abandon
    bool delayed = false;      // waits for another try, since `error`
    std::uint64_t round = 0;   // in which it was delayed first
    bool told = false;
    std::uint64_t written = 0;  // its number among those, from 1; 0: it is not
    std::uint64_t beside = 0;   // bytes that go through the page cache: all of it, or none
    std::uint64_t commit = 0;   // that was asked for when it was complete; 0: none yet
  };
  struct Report {
    bool persisted = false;  // else a transfer
    std::uint64_t which = 0;
    Result<void> result;
  };

  void report(Report report);
  void end_memory(ObjectId id, Object& object, std::vector<Ended>& ended);
  bool awaits_commit(ObjectId id, const Object& object) const;
  void ask_for_commit();
  bool give(ObjectId id);
  void take_off_dropped();
  Result<void> begin_in_store(ObjectId id, Object& object, std::uint64_t waiting);
  std::uint64_t waiting_of(Member member) const;
  void begin(Object object);
  void try_again();
  void delay(Object& object, const Error& error, std::vector<Ended>& ended);
  void end_delayed(const storage::Description& version, std::vector<Ended>& ended);
  bool replaces_another(ObjectId id) const;
  void end(ObjectId id, const Result<void>& result, std::vector<Ended>& ended);
  Result<std::vector<Extent>> extents_of(const WholeObject& object) const;

  const std::byte* const slabs_;
  const PoolShape shape_;
  os::Clock& clock_;
  const std::function<void()> wake_;
  std::unique_ptr<storage::PersistentStorage> storage_;
  std::uint32_t block_bytes_ = 0;
  ObjectId next_ = storage::kFirstObject;
  std::uint64_t next_token_ = 1;
  std::map<ObjectId, Object> objects_;
  std::set<ObjectId> held_;  // durable, and not ended yet: invariant 5
  struct Transfer {
    ObjectId object = 0;
    std::uint64_t offset = 0, bytes = 0;
  };
  void note_put(std::uint64_t token, const Transfer& transfer, Object& object);
  Object* find_piecewise(Member member, std::uint64_t number, ObjectId& id);
  std::map<std::uint64_t, Transfer> tokens_;  // of the transfers under way
  planner::WriteTurns turns_;                 // of the members, by bits(): their objects with bytes to give
  std::map<std::pair<std::uint64_t, std::uint64_t>, ObjectId> known_;  // by member and its number: durable
  struct Newest {
    ObjectId object = 0;
    std::uint64_t sequence = 0;
    bool operator<(const Newest& other) const { return sequence < other.sequence; }
  };
  std::map<Key, Newest> newest_;  // durable
  std::vector<Ended> failed_;     // before they were begun, or while they were delayed
  std::int64_t tried_at_ = 0;     // what is delayed, last
  bool try_now_ = false;
  std::uint64_t round_ = 1;    // of run()
  std::uint64_t commits_ = 0;  // that were asked for
  planner::Time commit_at_ = planner::kNever, moved_at_ = 0;
  std::uint64_t written_ = 0, lost_ = 0;             // as in PoolProgress
  std::set<std::uint64_t> gone_;                     // the members that have ended, by bits()
  std::map<std::uint64_t, std::uint64_t> rooms_;     // by member
  planner::LinkEstimate disk_{planner::LinkSpec()};  // of transfers past the page cache
  planner::Beside beside_;
  struct DroppedBeside {
    std::uint64_t drops = 0;  // of the storage, with this one
    std::uint64_t bytes = 0;
  };
  std::deque<DroppedBeside> dropped_beside_;  // of `beside_`, in order
  std::size_t copies_ = 0;                    // of the transfers under way, those through the page cache

  std::mutex mutex_;
  std::vector<Report> inbox_;
};

}  // namespace ebb::share
