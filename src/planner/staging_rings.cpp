#include "planner/staging_rings.hpp"

#include <algorithm>

namespace ebb::planner {

StagingRings::StagingRings(const Machine& machine) {
  for (std::size_t index = 0; index < machine.nodes.size(); ++index) {
    Node& node = nodes_.emplace_back();
    const int slots = machine.nodes[index].staging;
    node.slot_bytes = machine.ring_slot;
    node.of_lenders = all_lent(machine, static_cast<NodeIndex>(index));
    if (!node.of_lenders) {
      fill(node.rings.emplace_back(), slots);
      continue;
    }
    node.slots = slots;
    for (const LinkSpec& link : machine.links)
      if (link.from == static_cast<NodeIndex>(index) && link.to == kHost) node.slot_bytes = link.chunk;
  }
}

void StagingRings::fill(Ring& ring, int slots) {
  ring.slots = slots;
  for (auto& free : ring.free) {
    free.clear();
    for (int slot = slots; slot-- > 0;) free.push_back(slot);
  }
}

int StagingRings::slots(NodeIndex node) const {
  int all = 0;
  for (const Ring& ring : at(node).rings) all += ring.slots;
  return all;
}

int StagingRings::free(NodeIndex node, bool down) const {
  int all = 0;
  for (const Ring& ring : at(node).rings) all += ring.open_slots(down);
  return all;
}

int StagingRings::take(NodeIndex node, int ring, bool down) {
  std::vector<int>& free = at(node).ring(ring).free[down ? 0 : 1];
  const int slot = free.back();
  free.pop_back();
  return ring * kMostSlots + slot;
}

void StagingRings::give_back(NodeIndex node, bool down, int slot) {
  Ring& ring = at(node).ring(ring_of(slot));
  ring.free[down ? 0 : 1].push_back(slot % kMostSlots);
  end_if_idle(ring);
}

Place StagingRings::place(NodeIndex node, bool down, int slot) const {
  const Ring& ring = at(node).ring(ring_of(slot));
  const Bytes offset = static_cast<Bytes>((down ? 0 : ring.slots) + slot % kMostSlots) * at(node).slot_bytes;
  if (ring.memory) return {{Endpoint::tier, ring.memory->tier}, ring.memory->offset + offset};
  return {{Endpoint::ring, node}, offset};
}

Bytes StagingRings::wanted(NodeIndex index, PartyId lender, Bytes segment) const {
  const Node& node = at(index);
  const auto has = [&](const Ring& ring) {
    return ring.memory && !ring.memory->closed && ring.memory->lender == lender;
  };
  if (!node.of_lenders || std::ranges::any_of(node.rings, has)) return 0;
  const Bytes bytes = 2 * node.slot_bytes * static_cast<Bytes>(node.slots);
  return bytes > segment ? 0 : bytes;
}

void StagingRings::open(NodeIndex index, const Memory& memory) {
  Node& node = at(index);
  const auto ended = [](const Ring& ring) { return !ring.memory; };
  auto ring = std::ranges::find_if(node.rings, ended);
  if (ring == node.rings.end()) ring = node.rings.emplace(ring);
  ring->memory = memory;
  ++lent_;
  fill(*ring, node.slots);
}

const StagingRings::Memory* StagingRings::in(TierIndex tier, SegmentId segment) const {
  for (const Node& node : nodes_)
    for (const Ring& ring : node.rings)
      if (ring.memory && ring.memory->tier == tier && ring.memory->segment == segment) return &*ring.memory;
  return nullptr;
}

void StagingRings::close(TierIndex tier, SegmentId segment, bool urgent, bool lost) {
  for (Node& node : nodes_)
    for (Ring& ring : node.rings) {
      if (!ring.memory || ring.memory->tier != tier || ring.memory->segment != segment) continue;
      ring.memory->closed = true;
      ring.memory->lost |= lost;
      ring.memory->urgent |= urgent;
      end_if_idle(ring);
    }
}

void StagingRings::end_if_idle(Ring& ring) {
  if (!ring.memory || !ring.memory->closed || !ring.idle()) return;
  ring.memory.reset();
  --lent_;
  fill(ring, 0);
}

}  // namespace ebb::planner
