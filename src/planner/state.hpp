#pragma once
// The planner's tables and the moves over them. Each part of the policy has a file of its own:
//   requests.cpp  writes and reservations; answers     reading.cpp   restores and borrows
//   hints.cpp     hints, drops, waits                  placing.cpp   which tier a new checkpoint goes to
//   room.cpp      who may take whose room              flush.cpp     what goes down, and when
//   prefetch.cpp  what comes up, and when              moves.cpp     transfers, and what becomes of them
//   issue.cpp     what each link carries next          check.cpp     the invariants
//   keeping.cpp   what becomes durable, and what retention drops
//   segments.cpp  memory that is lent, recalled and lost
#include <array>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "planner/call.hpp"
#include "planner/checkpoint.hpp"
#include "planner/eviction.hpp"
#include "planner/fragment_map.hpp"
#include "planner/link.hpp"
#include "planner/move.hpp"
#include "planner/planner.hpp"
#include "planner/retention.hpp"
#include "planner/topology.hpp"

namespace ebb::policy {

// In whose name room is asked for decides what may be taken: see room.cpp.
struct Rights {
  enum Who : std::uint8_t { demand, flush, prefetch } who = demand;
  std::int64_t distance = FragmentScore::kUnhinted;
  bool down = false;    // for a flush: it must not undo the flush of another victim of the same call
  bool wanted = false;  // (down) it is itself wanted where it is: its copy below may cost nobody else's
  bool costly = true;   // may take what would have to be read again from a file (prefetch, flush)
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

  // One for each event: requests.cpp, reading.cpp, hints.cpp, keeping.cpp, moves.cpp, room.cpp
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
  void answer(Request& request, Reason reason, std::string detail = {});
  void answer_plain(RequestId id, Reason reason, std::string detail);
  template <class Write>
  bool begin_write(HistoryId client, const Write& e, Slot& slot, Request& request);
  Checkpoint* reported(HistoryId client, Version version, bool complete_there);
  void hint(HistoryId client, Version version, bool front);
  void unhint(const std::vector<Slot>& named);
  void refuse_tier(RequestId id);
  void refuse_missing(RequestId id, HistoryId client, Version version);
  void fail_waits(Slot slot, const std::string& why);
  void wait_for(Wait wait, const std::vector<Slot>& slots);
  void serve_waiting();
  bool place(Request& request, bool fastest_taken, bool at_any_cost);
  bool place_write(Request& request, bool fastest_taken, bool at_any_cost);
  bool place_borrow(Request& request);
  bool outgrown(const Request& request) const;
  void unwrite(Slot slot);
  bool keeps_in_file() const { return !machine.ephemeral && !memory(static_cast<TierIndex>(tiers() - 1)); }
  void lie_in_file(Slot slot);
  void mark_failed(Slot slot, TierIndex tier);
  void give_up_failed(Slot slot);
  void detach(Slot slot);
  bool stop_waiting(RequestId id, Reason reason, const std::string& detail);
  void start_read(Request& request);
  void start_parked(Slot slot);
  std::optional<Hold> give_back(RequestId held_by);
  void unhold(Move& move);
  // Something that is under way by itself may still make room.
  bool under_way() const { return commands_in_flight > 0 || ending > 0 || held_moves > 0 || syncing > 0; }
  std::uint32_t ready_successors(History& history) const;
  void finish_read(Slot slot, bool keep);
  void refuse_stuck();
  std::string describe_tiers() const;
  bool fits_somewhere(Bytes bytes, std::uint32_t excluded = 0) const;

  // table of checkpoints (planner.cpp)
  Slot obtain(HistoryId history, Version version);
  Slot lookup(HistoryId history, Version version) const;  // UINT32_MAX: none
  void stored(Checkpoint& c);                             // the application's bytes are all here
  void drop(Slot slot);
  void condemn(Slot slot, bool consumed);
  void try_release(Slot slot);
  void refresh(Slot slot);  // states from facts, flush lists
  void count_spare(Slot slot);
  void set_state(Slot slot, TierIndex tier, ReplicaState to);
  void remove_replica(Slot slot, TierIndex tier, bool evicted);
  void release_use(Slot slot, TierIndex tier);
  void hints_changed(Slot slot);
  TierIndex fastest(const Checkpoint& c) const;
  TierIndex lowest(const Checkpoint& c) const;
  bool safe_below(const Checkpoint& c, TierIndex t) const;
  TierIndex below(TierIndex tier) const { return tier + 1 < tiers() ? static_cast<TierIndex>(tier + 1) : kNoTier; }
  // Its place is, in part, where the tier's memory has turned out to have ended.
  bool beyond(const Checkpoint& c, TierIndex t) const {
    const auto i = static_cast<std::size_t>(t);
    return memory(t) && maps[i].beyond(c.at[i].offset, maps[i].footprint(c.bytes));
  }
  bool memory(TierIndex t) const { return machine.tiers[static_cast<std::size_t>(t)].medium != Medium::file; }
  TierIndex tiers() const { return static_cast<TierIndex>(machine.tiers.size()); }
  std::int64_t distance(const Checkpoint& c) const;
  // In a file, where nothing needs a place of its own, no bytes take none.
  Bytes footprint(TierIndex t, Bytes bytes) const {
    return bytes == 0 && !memory(t) ? 0 : maps[static_cast<std::size_t>(t)].footprint(bytes);
  }
  CheckpointRef ref(Slot s) const { return {s, checkpoints[s].generation}; }
  void withdraw_hint(Slot slot);
  bool remove_first_hint(Slot slot);
  void recount(Slot slot);  // its place in the restore order is to be served again
  History& history_of(const Checkpoint& c) { return histories[c.history]; }

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
  Time route_time(TierIndex from, TierIndex to, Bytes bytes) const;
  Bytes free_bytes(TierIndex t) const;

  // moves.cpp, issue.cpp
  const Route& route_of(TierIndex from, TierIndex to) const;
  MoveIndex start_move(MoveKind kind, Slot slot, TierIndex from, TierIndex to, RequestId request, bool demand,
                       Time since);
  void make_demand(MoveIndex index, Time since);
  void cancel_move(MoveIndex index);
  struct Lease {
    bool recalled = false;  // it is to be said when nothing is there any more
    bool lost = false;
    Time deadline = kNever;
    Time since = 0;
  };
  FragmentMap& map_of(TierIndex tier);
  Lease& lease_of(TierIndex tier, SegmentId segment);
  void lose_replica(Slot slot, TierIndex tier, const std::string& why);
  bool in_lost_memory(const Checkpoint& c, TierIndex t) const;
  bool urgently_recalled(const Checkpoint& c, TierIndex t) const;
  void leave_beyond();
  void rescue_upwards();
  void say_returned();
  bool all_out(const Move& m) const;
  void settle(MoveIndex index);
  void complete_move(MoveIndex index);
  void abort_move(MoveIndex index);
  void end_move(MoveIndex index);
  void issue();
  // What could be sent next over hop `hop`: an index into chunks, or kNewChunk; kNothing.
  static constexpr int kNothing = -2, kNewChunk = -1;
  int next_chunk(const Move& m, int hop, Bytes& length) const;
  void emit(MoveIndex index, int hop, int chunk, Bytes length);
  const Link& link_of(const Move& m, int hop) const {
    return links[static_cast<std::size_t>(m.route.link[static_cast<std::size_t>(hop)])];
  }
  Link& link_of(const Move& m, int hop) {
    return links[static_cast<std::size_t>(m.route.link[static_cast<std::size_t>(hop)])];
  }
  NodeIndex node_behind(const Move& m, int hop) const;
  std::vector<int>& free_slots_behind(const Move& m, int hop);
  const std::vector<int>& free_slots_behind(const Move& m, int hop) const;
  void return_slot(const Move& m, Chunk& k, int hop);
  void return_slots(const Move& m, Chunk& k);
  bool unsent_on(const Move& m, int hop) const;
  bool pending_on(const Move& m, int hop) const;
  void find_urgent();
  bool yields(const Link& link, int urgency) const;
  bool issue_round();
  bool on_streams(const Move& m) const;
  Bytes readable(const Move& m) const;
  CommandId coming_last(const Move& m, Bytes end) const;
  void spoil_readers(const Move& filler, Bytes from, bool displaced);
  int urgency(const Move& m) const;
  bool room_for_more(TierIndex from, TierIndex to, MoveKind kind) const;

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
  void waits_progress(Slot slot);

  // keeping.cpp
  bool retains() const { return machine.retention.keep_last > 0 && keeps_in_file(); }
  void count_kept(Slot slot);
  struct MadeUpFor {
    Slot slot = kNoSlot;
    bool goes = false;  // false: a multiple of keep_every
  };
  enum class When : std::uint8_t { now, room_is_needed, all_is_durable };
  std::vector<MadeUpFor> made_up_for(const History& history, When when) const;
  bool retire(History& history, When when);
  void no_room_yet(TierIndex tier);
  void make_room_in_file();
  void start_checks(const History& history);
  Slot next_to_file() const;
  Bytes needed_in_file(const Checkpoint& c) const;
  bool short_of_file(const Checkpoint& c) const;
  std::string describe_short(const Checkpoint& c) const;
  void ask_to_commit();

  void check() const;
  void check_kept() const;

  Machine machine;
  Time now = 0;
  Output* out = nullptr;
  Time wakeup = kNever;
  bool dirty = false;  // something that a plan depends on has changed
  int commands_in_flight = 0;

  std::vector<std::vector<Lease>> leases;  // of each tier's segments
  std::vector<FragmentMap> maps;           // file tiers: only footprint() is used
  std::vector<Bytes> file_used;
  std::vector<std::uint32_t> replicas;
  std::vector<std::uint64_t> evictions;
  std::vector<std::set<SpareKey>> spares;
  std::vector<Bytes> spare_bytes;      // of replicas that may go for nothing, once unused
  std::deque<Checkpoint> checkpoints;  // obtain() adds one while references to others are held
  std::vector<Slot> free_slots;
  std::vector<History> histories;
  std::deque<Move> moves;  // references stay good while moves are added
  std::vector<MoveIndex> free_moves;
  std::size_t live_moves = 0;
  struct CommandEntry {
    MoveIndex move = kNoMove;
    int hop = 0;
    Bytes offset = 0, length = 0;
    bool carried = false;
  };
  std::unordered_map<CommandId, CommandEntry> commands;
  CommandId next_command = 1;
  std::vector<Link> links;
  std::vector<Route> routes;  // (tiers + 1)^2; the last row and column are the application
  std::vector<std::array<std::vector<int>, 2>> free_slots_of;  // of each node's staging ring: down, up
  std::array<std::set<FlushKey>, kMaxTiers> flushable, forced;
  std::unordered_map<RequestId, Request> requests;
  std::unordered_map<RequestId, Hold> held;  // granted reservations and borrows, until they end
  int ending = 0;                            // of them, those that end by themselves
  int held_moves = 0;
  std::vector<RequestId> waiting;  // for room, in the order of their calls
  std::map<RequestId, Wait> waits;
  WindowChooser chooser;
  std::vector<FragmentScore> scratch;
  std::uint64_t sequence = 0;
  // Of a store with retention: what has yet to go down to the file, in the order of stored_at; how many checkpoints are
  // complete there and not durable, how many are on their way, and for how many of the former no commit was asked for.
  std::set<std::pair<std::uint64_t, Slot>> unfiled;
  std::size_t syncing = 0, filling = 0, uncommitted = 0;
  Bytes owed = 0;              // what the file holds once all of it is there and retention has dropped nothing
  bool file_full = false;      // something is held up since the file has no room yet
  bool nothing_comes = false;  // and nothing under way makes any
  Counters counters;
};

}  // namespace ebb::policy
