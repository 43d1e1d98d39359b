#pragma once
// Commands between tiers: from the planner's order to the copy engine and the storage, and back as completions.
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "options/defaults.hpp"
#include "planner/recycled.hpp"
#include "storage/storage.hpp"
#include "store/digests.hpp"
#include "store/parts.hpp"
#include "store/planner_port.hpp"
#include "transfer/copy_engine.hpp"

namespace ebb::storage {
class AlignedBytes;
class ChecksumWorkers;
struct Description;
}  // namespace ebb::storage

namespace ebb::store {

/// A queue for each link, and what its engine is at.
///
/// Thread safety: the `on_` methods are called on engines' threads, copies() and add_owner() from any; create() and
/// stop() while no other thread uses this; everything else takes the port's Locked.
/// 1. A link's commands are handed over in the planner's order, by one thread at a time, without the mutex.
/// 2. Each command's end is submitted at once, by the thread that saw it, unless the store is closed.
/// 3. A command is in `moving_` from before its hand-over until its end was submitted.
class LinkQueues {
 public:
  LinkQueues(PlannerPort& port, Lifetime& lifetime, Catalog& catalog, CacheMemory& memory, Persistence& files,
             Verifier& verifier, CallTable& calls, HandBacks& hand_backs)
      : port_(port),
        lifetime_(lifetime),
        catalog_(catalog),
        memory_(memory),
        files_(files),
        verifier_(verifier),
        calls_(calls),
        hand_backs_(hand_backs) {}
  /// Before any thread is there. Error: the device's.
  Result<void> create(const options::Seams& seams);
  /// The files are open.
  void set_files();
  /// Reports all that is under way; then no engine moves anything between memories.
  void stop();
  /// From now on copies between memory that this device lends and the host are made on its own streams. Errors: those
  /// of making them, closed.
  Result<void> add_owner(const std::shared_ptr<device::Device>& device);
  /// The engine of the application's device.
  transfer::CopyEngine& copies() { return *engines_.front(); }

  /// A command of the planner's between tiers.
  void add(const Locked& locked, const planner::Command& command);
  void clear(const Locked& locked);
  /// Something can be handed over, and no thread is at it.
  bool has_ready(const Locked& locked) const;
  /// Hands over what the planner has ordered. A lane that another thread is at is left to that thread.
  void drain(Locked& locked);

  /// A command has begun, between memories (`copies`) or with a file. Its source is to be compared with what was
  /// committed, if there is a comparison.
  void begin_move(const Locked& locked, const planner::Command& command, bool copies,
                  std::shared_ptr<Comparison> comparison, std::shared_ptr<storage::AlignedBytes> bounce = nullptr);
  /// A command's end, for the planner.
  void complete(const Locked& locked, planner::CommandId command, const Result<void>& result);
  /// On an engine's thread.
  void on_done(transfer::Token token, const Result<void>& result);
  /// On the file engine's thread, as the end of a write: the disk has its next work at once, while this is checked.
  void on_carried(transfer::Token token);
  /// On a thread of the tiers: more memory can be used, or less will ever be.
  void on_memory();

 private:
  struct Moving {
    planner::Command command;
    bool copies = false;
    std::shared_ptr<Comparison> comparison;
    std::shared_ptr<storage::AlignedBytes> bounce;
  };
  struct Handover {
    planner::Command command;
    transfer::CopyEngine* engine = nullptr;  // null: a file's
    unsigned stream = 0;
    FileTier* file = nullptr;
    storage::ObjectId object = 0;  // of a file's transfer
    bool put = false;
    std::shared_ptr<Comparison> comparison;  // that of its Moving
    // In place of memory that has no whole block of its own; its Moving's.
    std::shared_ptr<storage::AlignedBytes> bounce;
    std::optional<Error> refused;                             // the storage does not take the object
    std::shared_ptr<const storage::Description> description;  // of a persistent object whose first put this is
    const FileTier* described = nullptr;                      // else: where it is read, as the next
    storage::ObjectId described_as = 0;
    std::uint64_t sequence = 0;  // of the record then
  };
  // A link between tiers: what the planner has ordered and no engine has taken yet.
  struct Lane {
    std::deque<planner::Command> queue;
    bool draining = false;  // one thread hands its commands over: `orders` and `parts` are that thread's
    storage::ChecksumWorkers* apart = nullptr;  // of a file tier: its thread does
    std::vector<Handover> orders;
    std::vector<transfer::Part> parts;
    transfer::CopyEngine* engine = nullptr;  // null: a file's
    unsigned stream = 0;                     // of the engine
    std::optional<unsigned> of_host;         // to the host or from it: the stream of an owner's engine
  };
  // A device that lends memory; its copies to the host, and from it.
  struct Owner {
    std::shared_ptr<device::Device> device;
    std::unique_ptr<transfer::CopyEngine> engine;
  };
  using Failures = std::vector<std::pair<planner::CommandId, Error>>;
  bool ready(const Locked& locked, const Lane& lane) const;
  Result<void> describe(Handover& order) const;
  Handover prepare(const Locked& locked, const Lane& lane, const planner::Command& command);
  void drain_lane(Locked& locked, Lane& lane);
  void drain_apart(const Locked& locked, Lane& lane);
  Result<void> hand_over(Lane& lane, const Handover& order);
  Result<void> hand_over_copy(Lane& lane, const Handover& order);
  Result<void> hand_over_to_file(const Handover& order);
  planner::event::Failed::Cause cause_of(const Locked& locked, const Moving* moving, const Error& error);
  bool in_file(const planner::Place& place) const;
  bool needs_bounce(const planner::Place& place, const planner::Command& command) const;
  void choose_engine(const Locked& locked, const Lane& lane, Handover& order) const;

  PlannerPort& port_;
  Lifetime& lifetime_;
  Catalog& catalog_;
  CacheMemory& memory_;
  Persistence& files_;
  Verifier& verifier_;
  CallTable& calls_;
  HandBacks& hand_backs_;
  std::vector<std::unique_ptr<transfer::CopyEngine>> engines_;  // one for each device; constant until stop()
  // By the port's mutex; a lane's orders by the thread that drains it.
  std::vector<Lane> lanes_;    // by link
  std::size_t queued_ = 0;     // commands in the queues of all
  std::vector<Owner> owners_;  // none goes before stop()
  planner::RecycledHashMap<planner::CommandId, Moving>
      moving_;  // what the engines hold, and copies of the application's
};

}  // namespace ebb::store
