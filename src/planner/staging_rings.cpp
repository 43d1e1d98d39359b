#include "planner/staging_rings.hpp"

#include <algorithm>

namespace ebb::planner {

StagingRings::StagingRings(const Machine& machine) {
  for (std::size_t node = 0; node < machine.nodes.size(); ++node) {
    Ring& ring = rings_.emplace_back();
    const int slots = machine.nodes[node].staging;
    ring.slot_bytes = machine.ring_slot;
    ring.of_lenders = all_lent(machine, static_cast<NodeIndex>(node));
    if (!ring.of_lenders) {
      fill(ring, slots);
      continue;
    }
    ring.most = slots;
    for (const LinkSpec& link : machine.links)
      if (link.from == static_cast<NodeIndex>(node) && link.to == kHost) ring.slot_bytes = link.chunk;
  }
}

void StagingRings::fill(Ring& ring, int slots) {
  ring.slots = slots;
  for (auto& free : ring.free) {
    free.clear();
    for (int slot = slots; slot-- > 0;) free.push_back(slot);
  }
}

int StagingRings::free(NodeIndex node, bool down) const {
  const Ring& ring = at(node);
  return ring.memory && ring.memory->closed ? 0 : static_cast<int>(ring.free[down ? 0 : 1].size());
}

int StagingRings::take(NodeIndex node, bool down) {
  std::vector<int>& free = at(node).free[down ? 0 : 1];
  const int slot = free.back();
  free.pop_back();
  return slot;
}

void StagingRings::give_back(NodeIndex node, bool down, int slot) {
  at(node).free[down ? 0 : 1].push_back(slot);
  end_if_idle(at(node));
}

Place StagingRings::place(NodeIndex node, bool down, int slot) const {
  const Ring& ring = at(node);
  const Bytes offset = static_cast<Bytes>((down ? 0 : ring.slots) + slot) * ring.slot_bytes;
  if (ring.memory) return {{Endpoint::tier, ring.memory->tier}, ring.memory->offset + offset};
  return {{Endpoint::ring, node}, offset};
}

Bytes StagingRings::wanted(NodeIndex node, Bytes segment) const {
  constexpr Bytes kPart = 16;
  constexpr int kLeast = 2;
  const Ring& ring = at(node);
  if (!ring.of_lenders || ring.memory) return 0;
  const int slots = std::min(ring.most, static_cast<int>(segment / kPart / (2 * ring.slot_bytes)));
  return slots < kLeast ? 0 : 2 * static_cast<Bytes>(slots) * ring.slot_bytes;
}

void StagingRings::open(NodeIndex node, const Memory& memory) {
  Ring& ring = at(node);
  ring.memory = memory;
  fill(ring, static_cast<int>((memory.end - memory.begin) / (2 * ring.slot_bytes)));
}

const StagingRings::Memory* StagingRings::in(TierIndex tier, SegmentId segment) const {
  for (const Ring& ring : rings_)
    if (ring.memory && ring.memory->tier == tier && ring.memory->segment == segment) return &*ring.memory;
  return nullptr;
}

void StagingRings::close(TierIndex tier, SegmentId segment, bool urgent, bool lost) {
  for (Ring& ring : rings_) {
    if (!ring.memory || ring.memory->tier != tier || ring.memory->segment != segment) continue;
    ring.memory->closed = true;
    ring.memory->lost |= lost;
    if (urgent) ring.memory->lender = 0;
    end_if_idle(ring);
  }
}

void StagingRings::end_if_idle(Ring& ring) {
  if (!ring.memory || !ring.memory->closed || !ring.idle()) return;
  ring.memory.reset();
  fill(ring, 0);
}

}  // namespace ebb::planner
