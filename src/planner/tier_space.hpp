#pragma once
// The room on each tier: fragment maps of memory tiers and the segments lent for them, byte counts of file tiers, and
// which replicas are spare.
#include <string>
#include <vector>

#include "planner/checkpoint.hpp"
#include "planner/context.hpp"
#include "planner/fragment_map.hpp"
#include "planner/recycled.hpp"
#include "planner/staging_rings.hpp"

namespace ebb::planner {

class TierSpace {
 public:
  TierSpace(Context& context, const StagingRings& rings);

  const FragmentMap& map(TierIndex t) const { return at(t).map; }  // file tiers: only footprint() is used
  // In a file, where nothing needs a place of its own, no bytes take none.
  Bytes footprint(TierIndex t, Bytes bytes) const {
    return bytes == 0 && !context_.memory(t) ? 0 : map(t).footprint(bytes);
  }
  Bytes free_bytes(TierIndex t) const;
  bool fits(TierIndex t, Bytes bytes) const { return footprint(t, bytes) <= map(t).largest_segment(); }
  bool fits_somewhere(Bytes bytes, std::uint32_t excluded = 0) const;
  std::string describe() const;
  TierUse use(TierIndex t) const;

  // A new replica's offset; there must be room.
  Bytes enter(TierIndex t, Slot slot, Bytes bytes);
  // In memory of the program, of which the tier takes `adoptable` bytes in all.
  Bytes adoptable(TierIndex t) const { return context_.tier(t).adopted; }
  bool may_adopt(TierIndex t, Bytes bytes) const { return footprint(t, bytes) <= adoptable(t); }
  Bytes adopted(TierIndex t) const { return at(t).adopted; }
  void adopt(TierIndex t, Bytes bytes) { at(t).adopted += footprint(t, bytes), ++at(t).replicas; }
  void leave(TierIndex t, Bytes offset, Bytes size, bool evicted);
  // What has left a tier's file, and is on the disk still.
  Bytes unreleased(TierIndex t) const { return at(t).unreleased; }
  void set_unreleased(TierIndex t, Bytes bytes) { at(t).unreleased = bytes; }

  // Brings what is spare to what the checkpoint's facts say.
  void count_spare(Slot slot, Checkpoint& c);
  const RecycledSet<SpareKey>& spares(TierIndex t) const { return at(t).spares; }
  Bytes spare_bytes(TierIndex t) const { return at(t).spare_bytes; }
  const RecycledSet<SpareKey>& adopted_spares(TierIndex t) const { return at(t).adopted_spares; }

  // Segments of memory tiers. lend() returns the checkpoints that stay, though they were to leave.
  std::vector<Slot> lend(TierIndex t, SegmentId segment, Bytes bytes, PartyId lender = 0, bool relays = false);
  void recall(TierIndex t, SegmentId segment, Bytes bytes, Time deadline);
  // Nothing can be placed in the segment, and nothing is there.
  bool unused(TierIndex t, SegmentId segment) const;
  // So many bytes at the end of a segment are not for checkpoints; nothing is there.
  void set_aside(TierIndex t, SegmentId segment, Bytes bytes);
  void mark_lost(TierIndex t, SegmentId segment);
  void report_returned();
  PartyId lender_of(const Checkpoint& c, TierIndex t) const { return context_.memory(t) ? lease_of(c, t).lender : 0; }
  // Whether copies between the checkpoint's place and the host are made by the lender's device (event::Lend).
  bool relays(const Checkpoint& c, TierIndex t) const { return lease_of(c, t).relays; }
  // The lenders of all segments of which something can be used.
  std::vector<PartyId> lenders_of(TierIndex t) const;
  // Whether the checkpoint's place on the tier reaches beyond the end of its segment.
  bool place_beyond(const Checkpoint& c, TierIndex t) const {
    return context_.memory(t) && map(t).shortened() && !planner::adopted(c.at[t]) &&
           map(t).beyond(offset_of(c, t), map(t).footprint(c.bytes_on(t)));
  }
  // The same of any place that the replica on the tier is in, if it has parts.
  bool beyond(const Checkpoint& c, TierIndex t) const {
    return place_beyond(c, t) || (t == c.split.on && rest_beyond(c));
  }
  bool in_lost_memory(const Checkpoint& c, TierIndex t) const {
    return lease_of(c, t).lost || (needs_rest(c, t) && lease_of(c, c.split.rest).lost);
  }
  // Whether the lender takes the checkpoint's place on the tier back by a deadline.
  bool place_wanted_back(const Checkpoint& c, TierIndex t) const {
    return place_beyond(c, t) && lease_of(c, t).deadline != kNever;
  }
  // The same of any place that the replica on the tier is in.
  bool urgently_recalled(const Checkpoint& c, TierIndex t) const {
    return place_wanted_back(c, t) || (needs_rest(c, t) && place_wanted_back(c, c.split.rest));
  }

 private:
  struct Lease {
    bool recalled = false;  // it is to be said when nothing is there any more
    bool lost = false;
    Time deadline = kNever;
    PartyId lender = 0;
    bool relays = false;
    Bytes usable = 0;  // by checkpoints
    Bytes aside = 0;   // behind that
  };
  struct Tier {
    explicit Tier(const TierSpec& spec) : map(spec.granule, spec.grain ? spec.grain : spec.granule), leases(1) {}
    FragmentMap map;
    std::vector<Lease> leases;  // of its segments
    Bytes file_used = 0, unreleased = 0;
    std::uint32_t replicas = 0;
    std::uint64_t evictions = 0;
    RecycledSet<SpareKey> spares;
    Bytes spare_bytes = 0;  // of replicas that may go at no cost, once unused
    Bytes adopted = 0;
    RecycledSet<SpareKey> adopted_spares;  // not among the others: they leave no gap
  };
  Tier& at(TierIndex t) { return tiers_[static_cast<std::size_t>(t)]; }
  const Tier& at(TierIndex t) const { return tiers_[static_cast<std::size_t>(t)]; }
  Tier& with_segments(TierIndex t);
  static Lease& lease_of(Tier& tier, SegmentId segment);
  const Lease& lease_of(const Checkpoint& c, TierIndex t) const {
    static const Lease of_program;
    return planner::adopted(c.at[t]) ? of_program : at(t).leases[map(t).segment_of(offset_of(c, t))];
  }
  bool rest_beyond(const Checkpoint& c) const;
  static bool needs_rest(const Checkpoint& c, TierIndex t) {
    return t == c.split.on && c.at[c.split.rest].state != ReplicaState::gone;
  }
  static Bytes offset_of(const Checkpoint& c, TierIndex t) { return c.at[t].offset; }

  Context& context_;
  const StagingRings& rings_;
  std::vector<Tier> tiers_;
};

}  // namespace ebb::planner
