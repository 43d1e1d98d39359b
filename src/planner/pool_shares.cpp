#include "planner/pool_shares.hpp"

#include <algorithm>
#include <map>

namespace ebb::planner {
namespace {

constexpr Time kSettled = 500'000'000;

}  // namespace

std::vector<ShareCommand> plan_shares(Time now, std::uint32_t slabs_of_share, std::span<const PoolShare> shares,
                                      std::span<const PartyId> wanting) {
  const Quarters quarters(slabs_of_share);
  std::map<PartyId, std::uint32_t> has;
  for (const PoolShare& share : shares)
    for (const LeasedQuarter& quarter : share.quarters)
      if (quarter.state != LeaseState::gone) ++has[quarter.borrower];
  const auto neediest = [&](PartyId owner) {
    PartyId found = 0;
    for (const PartyId one : wanting)
      if (one != owner && (found == 0 || has[one] < has[found])) found = one;
    return found;
  };
  std::vector<ShareCommand> commands;
  for (std::uint32_t s = 0; s < shares.size(); ++s) {
    const PoolShare& share = shares[s];
    for (std::uint32_t q = 0; q < share.quarters.size(); ++q) {
      const LeasedQuarter& quarter = share.quarters[q];
      const bool lendable = quarters.lendable(quarters.starts()[q], share.used);
      if (quarter.state == LeaseState::lent && !lendable) {
        commands.push_back({ShareCommand::recall, s, q, quarter.borrower});
      } else if (quarter.state == LeaseState::gone && lendable && now - share.grew_at >= kSettled) {
        const PartyId to = neediest(share.owner);
        if (to == 0) break;
        ++has[to];
        commands.push_back({ShareCommand::grant, s, q, to});
      }
    }
  }
  return commands;
}

}  // namespace ebb::planner
