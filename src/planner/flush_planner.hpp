#pragma once
// What goes down, and when. Flushes leave in eviction order (needed latest first), ahead of need while the program
// writes, on demand otherwise; a persistent store flushes all of them.
#include <optional>

#include "planner/room.hpp"
#include "planner/state.hpp"

namespace ebb::planner {

class FlushPlanner : Decider {
 public:
  FlushPlanner(State& state, RoomFinder& rooms) : Decider(state), rooms_(rooms) {}

  void schedule();
  // Starts, or hastens, whatever makes this window evictable.
  void urge(TierIndex tier, const Room& room, const Rights& rights, Time since, int depth = 0);
  // The same for what goes first of the memory that the program has lent.
  void urge_adopted(const Rights& rights, Time since);

 private:
  // none_so_large: nor would another of the same kind that is as large or larger.
  enum class Started : std::uint8_t { no, none_so_large, yes };

  void schedule(TierIndex t, bool forced, bool sparing);
  const FlushKey* next(TierIndex t, bool forced, const FlushKey* after, const FlushQueue::Refused& refused) const;
  bool all_fit_below(TierIndex from) const;
  Started start(Slot slot, TierIndex from, const Rights& rights, Time since, int depth);
  bool holds_up_relays(const Checkpoint& c, TierIndex peer) const;
  Started complete_rest(Slot slot, const Rights& rights, Time since);
  Bytes least_part(TierIndex from, TierIndex peer) const;
  bool may_split(const Checkpoint& c, TierIndex from, TierIndex peer) const;
  Bytes head_for(const Checkpoint& c, TierIndex from, TierIndex peer, const Rights& rights);
  Bytes share_of(TierIndex peer, const Checkpoint& c, TierIndex from, Bytes step) const;
  void start_split(Slot slot, TierIndex from, const Split& parts, const Rights& rights, Time since);
  bool hasten(Slot slot, TierIndex from, const Rights& rights, Time since, int depth);
  bool idle_below(const Checkpoint& c, TierIndex from, TierIndex peer, const Rights& rights);
  bool quicker_below(const Checkpoint& c, TierIndex from, TierIndex peer, const Rights& rights);
  bool is_peer(TierIndex t) const { return t > 0 && context_.tier(t).medium == Medium::device; }
  bool may_send(TierIndex from) const;
  bool speculate() const;
  std::optional<Bytes> foreseen() const;
  bool all_fits() const;
  bool lacks_room(const Checkpoint& c, TierIndex tier) const;
  Bytes ready_ahead(TierIndex tier) const;
  Time written_meanwhile(const Checkpoint& c, TierIndex tier) const;
  bool all_later(TierIndex tier, const Room& room, std::int64_t than) const;

  RoomFinder& rooms_;
};

}  // namespace ebb::planner
