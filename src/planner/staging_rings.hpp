#pragma once
// The slots of the staging rings, through which chunks pass a node. A node has one ring of its own; where others lend
// all of its memory, each lender whose device copies to the host by itself has one there, at the end of a segment that
// it lent, which comes and goes with that.
#include <array>
#include <optional>
#include <vector>

#include "planner/commands.hpp"
#include "planner/topology.hpp"

namespace ebb::planner {

class StagingRings {
 public:
  explicit StagingRings(const Machine& machine);

  // The rings of a node have the numbers below; of those that have ended nothing is free.
  int count(NodeIndex node) const { return static_cast<int>(at(node).rings.size()); }
  // Slots for each direction, of all rings. None: no chunk passes the node now.
  int slots(NodeIndex node) const;
  Bytes slot_bytes(NodeIndex node) const { return at(node).slot_bytes; }
  // Slots that a chunk may take.
  int free(NodeIndex node, bool down) const;
  int free(NodeIndex node, int ring, bool down) const { return at(node).ring(ring).open_slots(down); }
  bool empty(NodeIndex node, int ring, bool down) const { return free(node, ring, down) == at(node).ring(ring).slots; }
  // A slot's number says which ring it is of.
  static int ring_of(int slot) { return slot / kMostSlots; }
  int take(NodeIndex node, int ring, bool down);
  void give_back(NodeIndex node, bool down, int slot);
  Place place(NodeIndex node, bool down, int slot) const;

  // --- rings in lent memory
  // The bytes that a ring takes at the end of a new segment of so many. 0: the lender has one, or there is no room.
  Bytes wanted(NodeIndex node, PartyId lender, Bytes segment) const;
  struct Memory {
    TierIndex tier = kNoTier;
    SegmentId segment = 0;
    PartyId lender = 0;
    Bytes begin = 0, end = 0;  // in the segment
    Bytes offset = 0;          // of its first byte in the tier
    bool closed = false;       // no chunk takes a slot of it any more
    bool urgent = false;       // the lender wants it back at once: its pace does not count
    bool lost = false;         // nor are its bytes what was written there
  };
  void open(NodeIndex node, const Memory& memory);
  // How many there are.
  int lent() const { return lent_; }
  // The ring in a segment, if there is one: it may be closed, and in use still.
  const Memory* in(TierIndex tier, SegmentId segment) const;
  // No chunk takes a slot of it any more. Those that have one go on, unless its memory is lost.
  void close(TierIndex tier, SegmentId segment, bool urgent, bool lost = false);
  bool lost(NodeIndex node, int ring) const { return at(node).ring(ring).memory && at(node).ring(ring).memory->lost; }
  // The lender of the ring's memory, 0: it is the node's own; and the one whose pace applies.
  PartyId lender(NodeIndex node, int ring) const {
    const auto& memory = at(node).ring(ring).memory;
    return memory ? memory->lender : 0;
  }
  PartyId paced_by(NodeIndex node, int ring) const {
    const auto& memory = at(node).ring(ring).memory;
    return memory && !memory->urgent ? memory->lender : 0;
  }

 private:
  friend class Invariants;
  static constexpr int kMostSlots = 1 << 16;  // of one ring
  struct Ring {
    int slots = 0;
    std::array<std::vector<int>, 2> free;  // down, up
    std::optional<Memory> memory;
    int open_slots(bool down) const {
      return memory && memory->closed ? 0 : static_cast<int>(free[down ? 0 : 1].size());
    }
    bool idle() const { return free[0].size() + free[1].size() == 2 * static_cast<std::size_t>(slots); }
  };
  struct Node {
    Bytes slot_bytes = 0;
    bool of_lenders = false;
    int slots = 0;  // of a ring in lent memory, for each direction
    std::vector<Ring> rings;
    const Ring& ring(int number) const { return rings[static_cast<std::size_t>(number)]; }
    Ring& ring(int number) { return rings[static_cast<std::size_t>(number)]; }
  };
  const Node& at(NodeIndex node) const { return nodes_[static_cast<std::size_t>(node)]; }
  Node& at(NodeIndex node) { return nodes_[static_cast<std::size_t>(node)]; }
  static void fill(Ring& ring, int slots);
  void end_if_idle(Ring& ring);

  std::vector<Node> nodes_;
  int lent_ = 0;  // rings in lent memory
};

}  // namespace ebb::planner
