#pragma once
// Transfers that have not ended: moves, their chunks and commands, and the slots of staging rings that they have.
#include <array>
#include <deque>
#include <vector>

#include "planner/calls.hpp"
#include "planner/checkpoint_table.hpp"
#include "planner/context.hpp"
#include "planner/links.hpp"
#include "planner/move.hpp"
#include "planner/pacer.hpp"
#include "planner/recycled.hpp"
#include "planner/staging_rings.hpp"

namespace ebb::planner {

class Transfers {
 public:
  Transfers(Context& context, CheckpointTable& table, const TierSpace& space, Pacers& pacers, StagingRings& rings,
            Links& links)
      : context_(context), table_(table), space_(space), pacers_(pacers), rings_(rings), links_(links) {}

  Move& operator[](MoveIndex i) { return moves_[static_cast<std::size_t>(i)]; }
  const Move& operator[](MoveIndex i) const { return moves_[static_cast<std::size_t>(i)]; }
  std::size_t count() const { return live_; }
  // A command that is not delayed, or a move held for its stream, has yet to end, or a lender's pace holds one up.
  bool in_flight() const { return in_flight_ > delayed_ || held_ > 0 || paced_; }
  void delay(MoveIndex index);
  void undelay(Move& move);

  // `call`: the one that the move serves, if any.
  MoveIndex begin(MoveKind kind, Slot slot, TierIndex from, TierIndex to, bool demand, Time since,
                  const Request* call = nullptr);
  // Goes on with the rest of what is split.
  void turn(MoveIndex index);
  void make_demand(MoveIndex index, Time since);
  void unhold(Move& m);
  // Sends nothing more of the move. True: nothing of it is in flight, and the caller has to end it.
  bool cancel(MoveIndex index);
  void end(MoveIndex index);
  bool all_out(const Move& m) const;
  // Whether a move that is not cancelled fills the replica, to the last byte.
  bool filling(const Replica& r) const {
    if (r.filler == kNoMove) return false;
    const Move& m = (*this)[r.filler];
    return !m.cancelled && !m.part;
  }

  Time time_left(const Move& m) const;
  // Whether a flush from one to the other is under way.
  bool carries(TierIndex from, TierIndex to) const;
  // The bytes that flushes under way from one to the other have yet to bring.
  Bytes left(TierIndex from, TierIndex to) const;
  bool room_for_more(TierIndex from, TierIndex to, MoveKind kind) const;

  // What could be sent next over a hop of one of the move's ways: an index into chunks, kNewChunk or kNothing.
  static constexpr int kNothing = -2, kNewChunk = -1;
  struct Hop {
    int way = 0, hop = 0;
  };
  int next_chunk(const Move& m, Hop at, Bytes& length) const;
  // Of a hop between the host and memory that others lend: the lender whose device copies the chunk; 0: the
  // application's does.
  PartyId copied_by(const Move& m, Hop at, int chunk) const;
  // Whether a new chunk would take a ring in lent memory that has no chunk on its way down.
  bool finds_empty_ring(const Move& m, Hop at) const;
  bool goes_straight(const Move& m, Hop at) const;
  bool unsent_on(const Move& m, Hop at) const;
  bool pending_on(const Move& m, Hop at) const;
  // True: more of the move could be sent now over other links.
  bool send(MoveIndex index, Hop at, int chunk, Bytes length);

  // When the lenders of its memory allow that the chunk is sent. It counts as sent only by send().
  Time at_pace(const Move& m, Hop at, int chunk, Bytes length);
  // Whether a lender's pace holds something up: nothing any more, or until that time.
  void hold_up_none() { paced_ = false; }
  void hold_up(Time until);

  // What a driver reports of a command.
  struct Sent {
    MoveIndex move = kNoMove;
    int link = 0;
    bool first = false, last = false;  // hop of its way
    Bytes offset = 0, length = 0;
    PartyId copied_by = 0;
    bool carried = false;
  };
  void carried(CommandId command);
  Sent ended(CommandId command, bool failed);
  Chunk& chunk_of(Move& m, Bytes offset);
  void remove_chunk(Move& m, Bytes offset);
  void return_slot(const Move& m, Chunk& k, int hop);
  void return_slots(const Move& m, Chunk& k);
  // Makes a chunk that is not on a link begin anew, over the direct route.
  void go_straight(const Move& m, Chunk& k);
  // Whether the chunk is in a staging ring whose memory was lost, or on its way there.
  bool in_lost_ring(const Move& m, const Chunk& k) const;
  // Chunks in such a ring begin anew at once, those on their way there when they arrive.
  void leave_lost_rings();

 private:
  friend class Invariants;

  NodeIndex node_behind(const Move& m, Hop at) const { return links_[route_of(m, at.way)[at.hop]].spec.to; }
  Bytes piece(const Move& m) const;
  int ring_for(const Move& m, Hop at) const;
  bool too_slow(const Move& m, Hop at, int ring) const;
  bool busy_itself(const Move& m, Hop at, int ring) const;
  std::array<Pacer*, 2> pacers_of(const Move& m, Hop at, int chunk);
  bool on_streams(const Move& m) const;
  // Whether it goes to a lower file that has not answered for long: nothing more of it is sent until that does.
  bool stopped(const Move& m) const { return m.delayed && context_.lower(m.to); }
  Bytes readable(const Move& m) const;
  CommandId coming_last(const Move& m, Bytes end) const;

  Context& context_;
  CheckpointTable& table_;
  const TierSpace& space_;
  Pacers& pacers_;
  StagingRings& rings_;
  Links& links_;
  std::deque<Move> moves_;  // references stay good while moves are added
  std::vector<MoveIndex> free_moves_;
  std::size_t live_ = 0;
  int held_ = 0;
  RecycledHashMap<CommandId, Sent> commands_;
  CommandId next_command_ = 1;
  int in_flight_ = 0;  // commands
  int delayed_ = 0;    // of those
  bool paced_ = false;
};

}  // namespace ebb::planner
