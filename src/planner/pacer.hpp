#pragma once
// How fast the memory of others may be copied to and from. A lender allows a share of its bandwidth: a copy that its
// link alone, at its first estimate, would carry in a second counts as two at a share of a half. What is given within
// any time counts as no more than that time and two copies; so the next is there when one ends. What has arrived is not
// asked: a link that was held up catches up with no more than it had been given.
#include <algorithm>
#include <map>

#include "planner/tier_space.hpp"

namespace ebb::policy {

// The copies to and from one lender's memory.
class Pacer {
 public:
  explicit Pacer(std::uint32_t share) : share_(std::max(share, 1u)) {}
  void set_share(std::uint32_t share) { share_ = std::max(share, 1u); }
  // What a copy over a link counts as.
  Time cost(const LinkSpec& link, Bytes bytes) const;
  // When it may be given.
  Time ready(Time cost) const { return until_ - cost; }
  void give(Time now, Time cost) { until_ = std::max(until_, now) + cost; }

 private:
  std::uint32_t share_;
  Time until_ = 0;  // as much as was given counts as the time up to here
};

// Of all lenders that allow less than the whole.
class Pacers {
 public:
  Pacers(const Context& context, const TierSpace& space) : context_(context), space_(space) {}

  void limit(PartyId lender, std::uint32_t share);
  // Of what is copied to or from a checkpoint's place on a tier (kNoTier: the application's); null: nothing limits
  // that. What its lender wants back at once may leave as fast as it can.
  Pacer* of(const Checkpoint& c, TierIndex tier);
  Pacer* of(PartyId lender);
  // What copying to or from a tier takes at the pace of the slowest of its lenders.
  Time slowest(TierIndex tier, const LinkSpec& link, Bytes bytes) const;

 private:
  const Context& context_;
  const TierSpace& space_;
  std::map<PartyId, Pacer> limited_;
};

}  // namespace ebb::policy
