#include "planner/tier_space.hpp"

#include <array>
#include <stdexcept>
#include <utility>

namespace ebb::planner {

TierSpace::TierSpace(Context& context, const StagingRings& rings) : context_(context), rings_(rings) {
  for (const TierSpec& t : context_.machine.tiers) {
    const bool nothing = t.capacity == 0 && t.medium == Medium::file;  // memory may all be lent by others
    if (nothing || t.granule == 0) throw std::logic_error("tier " + t.name + " has no capacity or no granule");
    if (t.grain != 0 && (t.medium == Medium::file || t.granule % t.grain != 0))
      throw std::logic_error("tier " + t.name + " has a grain of which its granule is no multiple, or is a file");
    Tier& tier = tiers_.emplace_back(t);
    tier.map.lend(0, t.capacity);
    tier.leases[0].usable = t.capacity;
  }
}

Bytes TierSpace::free_bytes(TierIndex t) const {
  const Tier& tier = at(t);
  if (context_.memory(t)) return tier.map.free();
  const Bytes taken = tier.file_used + tier.unreleased;  // with recovered ones perhaps more
  return taken < tier.map.capacity() ? tier.map.capacity() - taken : 0;
}

bool TierSpace::fits_somewhere(Bytes bytes, std::uint32_t excluded) const {
  for (TierIndex t = 0; t < context_.write_tiers(); ++t)
    if (!(excluded >> t & 1) && fits(t, bytes)) return true;
  return false;
}

std::string TierSpace::describe() const {
  std::string text;
  for (TierIndex t = 0; t < context_.tiers(); ++t) {
    const TierUse now = use(t);
    text += (t ? "; " : "") + context_.tier(t).name + ": " + std::to_string(now.used) + " of " +
            std::to_string(now.capacity) + " bytes used";
    if (adoptable(t) > 0)
      text += ", " + std::to_string(now.adopted) + " of " + std::to_string(adoptable(t)) + " adopted";
    if (context_.memory(t)) text += ", largest gap " + std::to_string(now.largest_gap);
  }
  return text;
}

TierUse TierSpace::use(TierIndex t) const {
  const Tier& tier = tiers_.at(static_cast<std::size_t>(t));
  const bool memory = context_.memory(t);
  return {.capacity = tier.map.lent(),
          .used = memory ? tier.map.used() : tier.file_used,
          .largest_gap = memory ? tier.map.largest_gap() : free_bytes(t),
          .replicas = tier.replicas,
          .evictions = tier.evictions,
          .adopted = tier.adopted,
          .unreleased = tier.unreleased};
}

Bytes TierSpace::enter(TierIndex t, Slot slot, Bytes bytes) {
  Tier& tier = at(t);
  const Bytes size = footprint(t, bytes);
  ++tier.replicas;
  if (!context_.memory(t)) {
    tier.file_used += size;
    return 0;
  }
  const auto offset = tier.map.place(slot, size);
  if (!offset) throw std::logic_error("a window was too small");
  return *offset;
}

void TierSpace::leave(TierIndex t, Bytes offset, Bytes size, bool evicted) {
  Tier& tier = at(t);
  if (offset >= kAdopted) {
    tier.adopted -= size;
  } else if (context_.memory(t)) {
    tier.map.erase(offset);
  } else {
    tier.file_used -= size;
    if (context_.keeps(t) && context_.machine.releases_later) tier.unreleased += size;
  }
  --tier.replicas;
  if (evicted) ++tier.evictions;
}

// A replica is spare when a complete copy stays without it: below, or (exclusive capacity) wanted above.
void TierSpace::count_spare(Slot slot, Checkpoint& c) {
  bool wanted_above = false;
  PerTier<Spare> spare{};
  for (TierIndex t = 0; t < context_.tiers(); ++t) {
    const Replica& r = c.at[t];
    if (!good(r)) continue;
    if (wanted_above) spare[t] = Spare::wanted_above;
    wanted_above |= context_.machine.ephemeral && r.wanted;
  }
  const SpareKey before =
      std::exchange(c.spare_key, SpareKey{c.hint == RestoreOrder::kNone ? INT64_MIN : -c.hint, c.touched, slot});
  Spare below = Spare::no;  // a copy in memory that was recalled makes nothing spare
  bool durable_below = false;
  for (TierIndex t = context_.tiers(); t-- > 0;) {
    Replica& r = c.at[t];
    if (good(r)) {
      const bool stays = context_.keeps(t) && !durable_below;
      if (spare[t] == Spare::no && !stays) spare[t] = below;
      durable_below |= durable(c.filed[t].state);
      if (!beyond(c, t)) below = context_.memory(t) ? Spare::memory_below : Spare::file_below;
    }
    const SpareKey was = spare_key(r.spare, before), key = spare_key(spare[t], c.spare_key);
    if (r.spare == spare[t] && (r.spare == Spare::no || key == was)) continue;
    const Bytes size = footprint(t, c.bytes_on(t));
    Tier& tier = at(t);
    const bool own = !planner::adopted(r);
    RecycledSet<SpareKey>& spares = own ? tier.spares : tier.adopted_spares;
    if (r.spare != Spare::no) {
      tier.spare_bytes -= own ? size : 0;
      spares.erase(was);
    }
    if (spare[t] != Spare::no) {
      tier.spare_bytes += own ? size : 0;
      spares.insert(key);
    }
    r.spare = spare[t];
  }
}

TierSpace::Tier& TierSpace::with_segments(TierIndex t) {
  if (t < 0 || t >= context_.tiers() || !context_.memory(t)) throw std::logic_error("only a memory tier has segments");
  return at(t);
}

TierSpace::Lease& TierSpace::lease_of(Tier& tier, SegmentId segment) {
  Lease& lease = tier.leases.at(segment);
  if (lease.lost) throw std::logic_error("a segment that was lost has no memory");
  return lease;
}

std::vector<Slot> TierSpace::lend(TierIndex t, SegmentId segment, Bytes bytes, PartyId lender, bool relays) {
  Tier& tier = with_segments(t);
  std::vector<Slot> stay;
  if (segment < tier.leases.size()) {
    lease_of(tier, segment);
    stay = tier.map.owners_beyond(segment);
  }
  tier.map.lend(segment, bytes);
  tier.leases.resize(tier.map.segments());  // one that was recalled is still to be reported
  tier.leases[segment].lender = lender;
  tier.leases[segment].relays = relays;
  tier.leases[segment].usable = bytes;
  tier.leases[segment].aside = 0;
  return stay;
}

bool TierSpace::unused(TierIndex t, SegmentId segment) const {
  const Tier& tier = at(t);
  return segment >= tier.leases.size() || (tier.leases[segment].usable == 0 && tier.map.owners_beyond(segment).empty());
}

void TierSpace::set_aside(TierIndex t, SegmentId segment, Bytes bytes) {
  Tier& tier = with_segments(t);
  Lease& lease = lease_of(tier, segment);
  lease.usable -= bytes;
  lease.aside = bytes;
  tier.map.recall(segment, lease.usable);
}

void TierSpace::recall(TierIndex t, SegmentId segment, Bytes bytes, Time deadline) {
  Tier& tier = with_segments(t);
  Lease& lease = lease_of(tier, segment);
  // Of several recalls that are not over, the earliest deadline counts.
  if (bytes <= lease.usable + lease.aside) bytes = std::min(bytes, lease.usable);
  const Time soonest = lease.recalled ? std::min(lease.deadline, deadline) : deadline;
  lease.recalled = true;
  lease.deadline = soonest;
  lease.usable = bytes;
  tier.map.recall(segment, bytes);
}

void TierSpace::mark_lost(TierIndex t, SegmentId segment) {
  Tier& tier = with_segments(t);
  lease_of(tier, segment) = {.lost = true};
  tier.map.recall(segment, 0);
}

std::vector<PartyId> TierSpace::lenders_of(TierIndex t) const {
  std::vector<PartyId> lenders;
  for (const Lease& lease : at(t).leases)
    if (lease.lender != 0 && lease.usable > 0) lenders.push_back(lease.lender);
  return lenders;
}

bool TierSpace::rest_beyond(const Checkpoint& c) const {
  return needs_rest(c, c.split.on) && place_beyond(c, c.split.rest);
}

// Recalled segments in which nothing is left beyond their end, and no chunk in the staging ring that was there.
void TierSpace::report_returned() {
  for (TierIndex t = 0; t < context_.tiers(); ++t) {
    Tier& tier = at(t);
    for (std::size_t s = 0; s < tier.leases.size(); ++s) {
      const auto segment = static_cast<SegmentId>(s);
      if (!tier.leases[s].recalled || !tier.map.owners_beyond(segment).empty()) continue;
      if (const auto* const ring = rings_.in(t, segment); ring != nullptr && ring->closed) continue;
      tier.leases[s].recalled = false;
      context_.out->returned.push_back({t, segment});
    }
  }
}

}  // namespace ebb::planner
