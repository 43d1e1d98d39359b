#pragma once
// The slots of the staging rings, through which chunks pass a node. A node has a ring of its own; where others lend all
// of its memory, the ring is at the end of a segment that they lent, and comes and goes with it.
#include <array>
#include <optional>
#include <vector>

#include "planner/commands.hpp"
#include "planner/topology.hpp"

namespace ebb::planner {

class StagingRings {
 public:
  explicit StagingRings(const Machine& machine);

  // Slots for each direction. None: no chunk passes the node now.
  int slots(NodeIndex node) const { return at(node).slots; }
  Bytes slot_bytes(NodeIndex node) const { return at(node).slot_bytes; }
  // Slots that a chunk may take.
  int free(NodeIndex node, bool down) const;
  int take(NodeIndex node, bool down);
  void give_back(NodeIndex node, bool down, int slot);
  Place place(NodeIndex node, bool down, int slot) const;

  // --- rings in lent memory
  // The bytes that a ring would take at the end of a new segment of so many: at most a sixteenth of it. 0: there is no
  // need of one, or no room for two slots.
  Bytes wanted(NodeIndex node, Bytes segment) const;
  struct Memory {
    TierIndex tier = kNoTier;
    SegmentId segment = 0;
    PartyId lender = 0;
    Bytes begin = 0, end = 0;  // in the segment
    Bytes offset = 0;          // of its first byte in the tier
    bool closed = false;       // no chunk takes a slot of it any more
    bool lost = false;         // nor are its bytes what was written there
  };
  void open(NodeIndex node, const Memory& memory);
  // The ring in a segment, if there is one: it may be closed, and in use still.
  const Memory* in(TierIndex tier, SegmentId segment) const;
  // No chunk takes a slot of it any more. Those that have one go on, unless its memory is lost.
  void close(TierIndex tier, SegmentId segment, bool urgent, bool lost = false);
  bool lost(NodeIndex node) const { return at(node).memory && at(node).memory->lost; }
  // The lender of the ring's memory, whose pace applies. 0: it is the node's own, or the lender wants it back at once.
  PartyId lender(NodeIndex node) const { return at(node).memory ? at(node).memory->lender : 0; }

 private:
  friend class Invariants;
  struct Ring {
    int slots = 0;
    Bytes slot_bytes = 0;
    std::array<std::vector<int>, 2> free;  // down, up
    bool of_lenders = false;
    int most = 0;  // slots of a ring in lent memory
    std::optional<Memory> memory;
    bool idle() const { return free[0].size() + free[1].size() == 2 * static_cast<std::size_t>(slots); }
  };
  const Ring& at(NodeIndex node) const { return rings_[static_cast<std::size_t>(node)]; }
  Ring& at(NodeIndex node) { return rings_[static_cast<std::size_t>(node)]; }
  static void fill(Ring& ring, int slots);
  static void end_if_idle(Ring& ring);

  std::vector<Ring> rings_;  // by node
};

}  // namespace ebb::planner
