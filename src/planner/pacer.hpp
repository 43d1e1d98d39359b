#pragma once
// How fast the memory of others may be copied to and from. A lender allows a share of its bandwidth: a copy that its
// link alone, at its first estimate, would carry in a second counts as two at a share of a half. What is given within
// any time counts as no more than that time and two copies; so the next is there when one ends. What has arrived is not
// asked: a link that was held up catches up with no more than it had been given.
#include <algorithm>
#include <map>

#include "planner/tier_space.hpp"

namespace ebb::planner {

// The copies to and from one lender's memory.
class Pacer {
 public:
  explicit Pacer(std::uint32_t share) : share_(std::max(share, 1u)) {}
  void set_share(std::uint32_t share) { share_ = std::max(share, 1u); }
  // The time that a copy counts as, over a link of such a rate.
  Time cost(double bytes_per_s, Bytes bytes) const;
  // When a copy that costs so much may be given.
  Time ready(Time cost) const { return until_ - cost; }
  void give(Time now, Time cost) { until_ = std::max(until_, now) + cost; }

 private:
  std::uint32_t share_;
  Time until_ = 0;  // as much as was given counts as the time up to here
};

// The pacers of all lenders that allow less than the whole of their bandwidth.
class Pacers {
 public:
  Pacers(const Context& context, const TierSpace& space) : context_(context), space_(space) {}

  void limit(PartyId lender, std::uint32_t share);
  // The pacer of copies to or from a checkpoint's place on a tier (kNoTier: the application's); null: nothing limits
  // them. Copies out of memory that its lender wants back at once are not limited.
  Pacer* of(const Checkpoint& c, TierIndex tier);
  Pacer* of(PartyId lender);
  // The time that copying to or from a tier takes at the pace of the slowest of its lenders.
  Time slowest(TierIndex tier, const LinkSpec& link, Bytes bytes) const;

 private:
  const Context& context_;
  const TierSpace& space_;
  std::map<PartyId, Pacer> limited_;
};

}  // namespace ebb::planner
