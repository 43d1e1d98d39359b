#include "planner/pacer.hpp"

#include <cmath>

namespace ebb::planner {

Time Pacer::cost(double link_bytes_per_s, Bytes bytes) const {
  constexpr double kLongest = 1e17;  // three years
  const double bytes_per_s = std::max(1.0, link_bytes_per_s) * share_ / kWholeLink;
  return static_cast<Time>(std::min(kLongest, std::ceil(static_cast<double>(bytes) * 1e9 / bytes_per_s)));
}

void Pacers::limit(PartyId lender, std::uint32_t share) {
  if (share >= kWholeLink) {
    limited_.erase(lender);
  } else if (const auto [at, fresh] = limited_.try_emplace(lender, share); !fresh) {
    at->second.set_share(share);
  }
}

Pacer* Pacers::of(const Checkpoint& c, TierIndex tier) {
  if (limited_.empty() || tier == kNoTier || space_.place_wanted_back(c, tier)) return nullptr;
  return of(space_.lender_of(c, tier));
}

Pacer* Pacers::of(PartyId lender) {
  const auto found = limited_.find(lender);
  return found == limited_.end() ? nullptr : &found->second;
}

Time Pacers::slowest(TierIndex tier, const LinkSpec& link, Bytes bytes) const {
  Time slowest = 0;
  if (limited_.empty() || tier == kNoTier) return slowest;
  for (const PartyId lender : space_.lenders_of(tier))
    if (const auto found = limited_.find(lender); found != limited_.end())
      slowest = std::max(slowest, found->second.cost(link.bytes_per_s, bytes));
  return slowest;
}

}  // namespace ebb::planner
