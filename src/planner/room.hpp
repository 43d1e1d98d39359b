#pragma once
// Who may take whose room. Evictable = complete, no uses, and another complete copy stays (or it is no longer wanted,
// in which case it is gone already). Beyond that, by the right in whose name room is asked for:
//   demand    a call that waits: anything evictable; else what a flush makes evictable soonest
//   flush     on its way down: what is safe and not wanted sooner than itself; what would have to be read from a file
//             again only while its own tier has little room for the next writes
//   prefetch  on its way up: what is needed later than itself; what would have to be read from a file again only for
//             the next few checkpoints, since each such displacement costs the slowest link once more; not the copy
//             below of what was flushed to make room above, and has yet to leave it
#include <optional>
#include <vector>

#include "planner/eviction.hpp"
#include "planner/state.hpp"

namespace ebb::planner {

// Who asks for room, which decides what may be evicted for it.
struct Rights {
  enum Who : std::uint8_t { demand, flush, prefetch } who = demand;
  std::int64_t distance = FragmentScore::kUnhinted;
  bool down = false;    // for a flush: it must not undo the flush of another victim of the same call
  bool wanted = false;  // (down) it is itself wanted where it is: its copy below may cost no other copy
  bool costly = true;   // may take what would have to be read again from a file (prefetch, flush)
  Slot self = kNoSlot;
};

struct Room {
  bool possible = false;
  bool full = false;         // not possible, whoever asks without waiting
  Time wait = 0;             // 0: now
  Bytes begin = 0, end = 0;  // memory tiers: what starts there is to leave; empty: a gap holds it
};

class RoomFinder : Decider {
 public:
  explicit RoomFinder(State& state) : Decider(state), chooser_(context_.machine.eviction) {}

  Room look(TierIndex tier, Bytes bytes, const Rights& rights);
  // The best window of all fragments, which are looked at one by one. look() finds the same sooner, if it can.
  std::optional<Room> search(TierIndex tier, Bytes size, const Rights& rights);
  // Room that has been found, and has not to be waited for.
  void take(TierIndex tier, Slot slot, const Room& room, ReplicaState as);
  // Makes the program's memory at `place` a replica on the fastest tier, if what is adopted leaves or can make room.
  bool adopt(Slot slot, Bytes place);

 private:
  void evict(Slot slot, TierIndex tier);
  Time flush_wait(const Checkpoint& c, TierIndex tier) const;
  FragmentScore score(const FragmentMap::Fragment& f, TierIndex tier, const Rights& rights) const;
  bool may_take(const Checkpoint& c, const Replica& r, const Rights& rights) const;
  Time demand_wait(const Checkpoint& c, const Replica& r, TierIndex tier) const;
  bool would_hold(const Checkpoint& c, TierIndex tier, Bytes size) const;
  bool spares_in_order() const;
  std::optional<Room> look_first(TierIndex tier, Bytes size, const Rights& rights) const;
  std::optional<Room> join_spares(TierIndex tier, Bytes size, const Rights& rights);
  std::optional<Room> near_flushes(TierIndex tier, Bytes size, const Rights& rights);
  using FragmentAt = FragmentMap::Fragments::const_iterator;
  // Fragments side by side.
  struct Run {
    FragmentAt begin, end;
    Bytes bytes = 0;
  };
  template <class Joins>
  Run run_around(TierIndex tier, FragmentAt at, Bytes enough, const Joins& joins) const;
  void put(const Run& run, TierIndex tier, const Rights& rights);
  std::optional<Room> best_of_put(TierIndex tier, Bytes size);
  std::vector<Slot> spare_in_file(TierIndex tier, Bytes size, Slot self) const;

  WindowChooser chooser_;
  std::vector<FragmentScore> scores_;  // of the fragments that put() was given
  std::vector<FragmentAt> places_;     // theirs
};

}  // namespace ebb::planner
