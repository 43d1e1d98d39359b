#pragma once
// The planner's tables and the moves over them. Each part of the policy has a
// file of its own:
//   requests.cpp  writes and reservations; answers     reading.cpp   restores
//   and borrows hints.cpp     hints, drops, waits                  placing.cpp
//   which tier a new checkpoint goes to room.cpp      who may take whose room
//   flush.cpp     what goes down, and when prefetch.cpp  what comes up, and
//   when              moves.cpp     transfers, and what becomes of them
//   issue.cpp     what each link carries next          check.cpp     the
//   invariants keeping.cpp   what becomes durable, and what retention drops
//   segments.cpp  memory that is lent, recalled and lost
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "planner/calls.hpp"
#include "planner/checkpoint_table.hpp"
#include "planner/context.hpp"
#include "planner/durability.hpp"
#include "planner/eviction.hpp"
#include "planner/flush_queue.hpp"
#include "planner/link_scheduler.hpp"
#include "planner/replicas.hpp"
#include "planner/tier_space.hpp"
#include "planner/transfers.hpp"
#include "planner/waits.hpp"

namespace ebb::policy {

// In whose name room is asked for decides what may be taken: see room.cpp.
struct Rights {
  enum Who : std::uint8_t { demand, flush, prefetch } who = demand;
  std::int64_t distance = FragmentScore::kUnhinted;
  bool down = false;    // for a flush: it must not undo the flush of another
                        // victim of the same call
  bool wanted = false;  // (down) it is itself wanted where it is: its copy below
                        // may cost nobody else's
  bool costly = true;   // may take what would have to be read again from a file
                        // (prefetch, flush)
  Slot self = UINT32_MAX;
};

struct Room {
  bool possible = false;
  Time wait = 0;  // 0: now
  Window window;  // memory tiers; empty: a gap holds it
};

struct Planner::State {
  explicit State(const Machine& m);
  void on(const Event& event, Output& out);

  // One for each event: requests.cpp, reading.cpp, hints.cpp, keeping.cpp,
  // moves.cpp, room.cpp
  void on(HistoryId client, const event::Checkpoint& e);
  void on(HistoryId client, const event::Reserve& e);
  void on(HistoryId client, const event::Restore& e);
  void on(HistoryId client, const event::Borrow& e);
  void on(HistoryId client, const event::Wait& e);
  void on(HistoryId client, const event::WaitAll& e);
  void on(HistoryId client, const event::Submit& e);
  void on(HistoryId client, const event::Commit& e);
  void on(HistoryId client, const event::Abandon& e);
  void on(HistoryId client, const event::Release& e);
  void on(HistoryId client, const event::Cancel& e);
  void on(HistoryId client, const event::Ready& e);
  void on(HistoryId client, const event::Hint& e);
  void on(HistoryId client, const event::HintFront& e);
  void on(HistoryId client, const event::Unhint& e);
  void on(HistoryId client, const event::UnhintAll& e);
  void on(HistoryId client, const event::StartPrefetch& e);
  void on(HistoryId client, const event::Order& e);
  void on(HistoryId client, const event::Drop& e);
  void on(HistoryId client, const event::DropAll& e);
  void on(HistoryId client, const event::Forget& e);
  void on(HistoryId client, const event::Recovered& e);
  void on(HistoryId client, const event::Durable& e);
  void on(HistoryId client, const event::NotDurable& e);
  void on(HistoryId client, const event::Carried& e);
  void on(HistoryId client, const event::Finished& e);
  void on(HistoryId client, const event::Failed& e);
  void on(HistoryId client, const event::Lend& e);
  void on(HistoryId client, const event::Recall& e);
  void on(HistoryId client, const event::Lost& e);
  void on(HistoryId client, const event::Tick& e);

  // requests.cpp, reading.cpp, hints.cpp, placing.cpp
  template <class Write>
  bool begin_write(HistoryId client, const Write& e, Slot& slot, Request& request);
  Checkpoint* reported(HistoryId client, Version version, bool complete_there);
  void unhint(const std::vector<Slot>& named);
  void refuse_tier(RequestId id);
  void serve_waiting();
  bool place(Request& request, bool fastest_taken, bool at_any_cost);
  bool place_write(Request& request, bool fastest_taken, bool at_any_cost);
  bool place_borrow(Request& request);
  bool outgrown(const Request& request) const;
  void unwrite(Slot slot);
  void give_up_failed(Slot slot);
  bool stop_waiting(RequestId id, Reason reason, const std::string& detail);
  void start_read(Request& request);
  void start_parked(Slot slot);
  bool under_way() const { return transfers.under_way() || calls.any_ending() || durability.under_way(); }
  bool refuse_waiting();
  void finish_read(Slot slot, bool keep);
  void refuse_stuck();

  // table of checkpoints (planner.cpp)
  void drop(Slot slot);
  void condemn(Slot slot, bool consumed);

  // room.cpp
  FragmentScore score(const FragmentMap::Fragment& f, TierIndex tier, const Rights& rights) const;
  Room look(TierIndex tier, Bytes bytes, const Rights& rights);
  void take(TierIndex tier, Slot slot, const Room& room, ReplicaState as);
  void urge(TierIndex tier, const Room& room, const Rights& rights, Time since, int depth = 0);
  void hasten_flush(Slot slot, TierIndex from, const Rights& rights, Time since, int depth);
  std::vector<Slot> spare_in_file(TierIndex tier, Bytes size, Slot self) const;
  std::optional<Room> look_first(TierIndex tier, Bytes size, const Rights& rights) const;
  bool may_take(const Checkpoint& c, const Replica& r, const Rights& rights) const;
  Room alone(TierIndex tier, Slot slot, Time wait) const;
  Bytes room_of(const Checkpoint& c, TierIndex tier) const;
  Time flush_wait(const Checkpoint& c, TierIndex tier) const;
  Time demand_wait(const Checkpoint& c, const Replica& r, TierIndex tier) const;

  // moves.cpp, issue.cpp
  void cancel_move(MoveIndex index);
  void lose_replica(Slot slot, TierIndex tier, const std::string& why);
  void leave_beyond();
  void rescue_upwards();
  void settle(MoveIndex index);
  void complete_move(MoveIndex index);
  void abort_move(MoveIndex index);
  void spoil_readers(const Move& filler, Bytes from, bool displaced);

  // flush.cpp, prefetch.cpp
  void schedule_flushes();
  bool start_flush(Slot slot, TierIndex from, const Rights& rights, Time since, int depth);
  bool speculate() const;
  Bytes ready_ahead(TierIndex tier) const;
  Bytes enough_ahead(const Checkpoint& c, TierIndex tier) const;
  bool all_later(TierIndex tier, const Room& room, std::int64_t than) const;
  void schedule_prefetches();
  void prefetch(History& history);
  enum class Step : std::uint8_t { served, started, blocked };
  Step bring(Slot slot, TierIndex target, Bytes ahead);
  bool prefetching(const History& history);
  Bytes costly_window(const Checkpoint& c) const;

  // keeping.cpp
  bool retire(History& history, Durability::When when);
  void make_room_in_file();
  void start_checks(const History& history);

  Context context;
  TierSpace space;
  CheckpointTable table;
  Transfers transfers;
  Durability durability;
  FlushQueue queue;
  Replicas replicas;
  Calls calls;
  Waits waits;
  LinkScheduler scheduler;
  WindowChooser chooser;
  std::vector<FragmentScore> scratch;
};

}  // namespace ebb::policy
