// Room that is found through the order of what is spare, against the search of all fragments: the same choice.
#include "planner/room.hpp"

#include <algorithm>
#include <gtest/gtest.h>
#include <random>
#include <set>
#include <tuple>

namespace ebb::planner {
namespace {

constexpr Bytes kPage = 4096;

Machine machine_for_rooms(bool ephemeral, bool small) {
  Machine machine;
  machine.tiers = {{"device", Medium::device, 48 * kPage, kPage},
                   {"host", Medium::host, 64 * kPage, kPage},
                   {"local", Medium::file, 4096 * kPage, kPage}};
  if (small) machine.tiers[0].grain = kPage / 16, machine.tiers[1].grain = kPage / 4;
  machine.ephemeral = ephemeral;
  connect(machine);
  return machine;
}

/// Memory tiers with replicas of all sizes and kinds, and gaps, as they may be at any moment.
class Filled {
 public:
  Filled(std::uint64_t seed, bool lent, bool small)
      : random_(seed), small_(small), state_(machine_for_rooms(random_() % 2, small)) {
    state_.context.out = &out_;
    state_.context.now = 1;
    if (lent) state_.space.lend(1, 1, 24 * kPage);
    for (Version v = 0; v < 120; ++v) add(v);
    for (int i = 0; i < 60; ++i) change(static_cast<Slot>(random_() % state_.table.size()));
    if (lent && random_() % 2) state_.space.recall(1, 1, random_() % 24 * kPage, kNever);
    for (Slot s = 0; s < state_.table.size(); ++s) state_.replicas.refresh(s);
  }

  State& state() { return state_; }
  Rights rights() {
    Rights r{.who = static_cast<Rights::Who>(random_() % 3), .self = 0};
    if (random_() % 2) r.distance = static_cast<std::int64_t>(random_() % 60);
    r.down = random_() % 3 == 0;
    r.wanted = random_() % 3 == 0;
    r.costly = random_() % 2;
    return r;
  }
  Bytes size() {
    if (small_ && random_() % 2) return 1 + random_() % kPage;
    return 1 + random_() % (random_() % 3 ? 4 : 24) * kPage;
  }

 private:
  void add(Version v) {
    const Slot slot = state_.table.obtain(0, v);
    Checkpoint& c = state_.table[slot];
    c.become(WriteState::writing);
    c.bytes = size();
    c.written = c.touched = state_.table.next_sequence();
    bool any = false;
    for (TierIndex t = 0; t < 3; ++t) {
      const Bytes footprint = state_.space.footprint(t, c.bytes);
      const bool room = t == 2 || state_.space.map(t).largest_gap() >= footprint;
      if (!room || random_() % 3 == 0) continue;
      state_.replicas.enter(slot, t, ReplicaState::writing);
      state_.table.set_state(slot, t, ReplicaState::written);
      c.at[t].watermark = c.bytes;
      any = true;
    }
    if (!any) {
      c.become(WriteState::unwritten);
      return state_.replicas.try_release(slot);
    }
    state_.table.set_stored(c);
    state_.replicas.refresh(slot);
    if (random_() % 2) state_.replicas.hint(0, v, random_() % 2);
  }
  void change(Slot slot) {
    Checkpoint& c = state_.table[slot];
    if (!c.stored()) return;
    const auto t = static_cast<TierIndex>(random_() % 2);
    if (!complete(c.at[t].state)) return;
    switch (random_() % 4) {
      case 0: c.at[t].wanted = c.hint != RestoreOrder::kNone; break;
      case 1: c.at[t].uses = 1; break;
      case 2: c.touched = state_.table.next_sequence(); break;
      default:
        if (state_.table.fastest(c) != state_.table.lowest(c) && c.at[t].uses == 0)
          state_.replicas.remove(slot, t, false);
    }
    state_.replicas.refresh(slot);
  }

  std::mt19937_64 random_;
  const bool small_;  // some are smaller than a granule
  Output out_;
  State state_;
};

std::vector<Slot> leaving(const State& state, TierIndex t, const Room& room) {
  std::vector<Slot> slots;
  Bytes at = room.begin;
  for (Slot s; (s = state.space.map(t).next_owner(at, room.end)) != kNoSlot;) slots.push_back(s);
  return slots;
}

using Price = std::tuple<Time, std::int64_t, std::uint64_t>;  // the wait, what is needed soonest, what was touched last

Price price_of(const State& state, TierIndex t, const Room& room) {
  Price cost{room.wait, INT64_MIN, 0};
  for (const Slot s : leaving(state, t, room)) {
    const Checkpoint& c = state.table[s];
    if (c.at[t].spare == Spare::wanted_above) continue;
    if (c.hint != RestoreOrder::kNone) std::get<1>(cost) = std::max(std::get<1>(cost), -c.hint);
    std::get<2>(cost) = std::max(std::get<2>(cost), c.touched);
  }
  return cost;
}

class Rooms : public ::testing::TestWithParam<bool> {};

TEST_P(Rooms, AreThoseOfTheSearchOfAllFragments) {
  std::set<std::size_t> members;
  int refused = 0, waited = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Filled filled(seed, seed % 3 == 0, GetParam());
    State& state = filled.state();
    RoomFinder rooms(state);
    for (int i = 0; i < 60; ++i) {
      const auto t = static_cast<TierIndex>(i % 2);
      const Bytes size = filled.size();
      const Rights rights = filled.rights();
      const Bytes footprint = state.space.footprint(t, size);
      if (state.space.map(t).largest_gap() >= footprint || footprint > state.space.map(t).largest_segment()) continue;
      const Room found = rooms.look(t, size, rights);
      const auto all = rooms.search(t, footprint, rights);
      ASSERT_EQ(found.possible, all.has_value()) << "seed " << seed << ", " << i;
      refused += !found.possible;
      if (!all) continue;
      ASSERT_EQ(price_of(state, t, found), price_of(state, t, *all)) << "seed " << seed << ", " << i;
      waited += found.wait > 0;
      const std::vector<Slot> slots = leaving(state, t, found);
      members.insert(slots.size());
      const auto free = [&](Slot s) { return state.table[s].at[t].spare == Spare::wanted_above; };
      if (std::ranges::any_of(slots, free)) continue;  // those are worth nothing, one as little as another
      ASSERT_EQ(slots, leaving(state, t, *all)) << "seed " << seed << ", " << i;
    }
  }
  EXPECT_GT(members.size(), 6u);
  EXPECT_GT(refused, 100);
  EXPECT_GT(waited, 100);
}
INSTANTIATE_TEST_SUITE_P(Small, Rooms, ::testing::Bool());

// A call does not wait for room that no flush can make.
TEST(RoomOfTheFirstBytes, IsMadeIfTheyHaveAPlaceWhereTheOthersAre) {
  constexpr TierIndex kPeer = 1, kHostTier = 2;
  Machine machine;
  machine.tiers = {{"device", Medium::device, 16 * kPage, kPage},
                   {"peer", Medium::device, 4 * kPage, kPage},
                   {"host", Medium::host, 16 * kPage, kPage}};
  connect(machine);
  State state(machine);
  Output out;
  state.context.out = &out;
  const Slot slot = state.table.obtain(0, 1);
  Checkpoint& c = state.table[slot];
  c.become(WriteState::writing);
  c.bytes = 8 * kPage;
  c.split = {.on = kPeer, .rest = kHostTier, .head = 4 * kPage};
  for (const TierIndex t : {kPeer, kHostTier}) state.replicas.enter(slot, t, ReplicaState::writing);
  state.table.set_state(slot, kPeer, ReplicaState::written);
  c.at[kPeer].watermark = c.split.head;
  c.at[kHostTier].uses = 1;
  state.table.set_stored(c);
  state.replicas.refresh(slot);
  RoomFinder rooms(state);
  const Rights call{.who = Rights::demand, .self = kNoSlot};
  EXPECT_TRUE(rooms.look(kPeer, 4 * kPage, call).possible);
  state.space.lend(kHostTier, 1, 16 * kPage);
  state.space.recall(kHostTier, 0, 0, kNever);
  EXPECT_FALSE(rooms.look(kPeer, 4 * kPage, call).possible);
}

}  // namespace
}  // namespace ebb::planner
