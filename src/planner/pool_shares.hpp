#pragma once
// Who uses what of the shares of a node's pool: the rule by which its agent lends and recalls.
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "planner/ids.hpp"
#include "planner/lease.hpp"

namespace ebb::planner {

/// A share, a run of slabs that its process uses from the front, is lent in quarters from its end. Between what the
/// process uses and what is lent there is always a quarter that is free, or is being returned, so that the process goes
/// on while others make room. The first quarter is never lent.
class Quarters {
 public:
  explicit Quarters(std::uint32_t share) : share_(share) {}

  /// Slabs of each; 0: the share is too small to be lent.
  std::uint32_t slabs() const { return share_ / 4; }
  /// Where those that can be lent begin in the share, the one that is lent first before the others.
  std::array<std::uint32_t, 3> starts() const { return {share_ - slabs(), share_ - 2 * slabs(), share_ - 3 * slabs()}; }
  /// Whether the quarter that begins there may be lent while the process uses `used` slabs. If not, it is recalled.
  bool lendable(std::uint32_t start, std::uint32_t used) const { return slabs() > 0 && used + slabs() <= start; }

 private:
  std::uint32_t share_;
};

/// A quarter of a share: who has it on lease.
struct LeasedQuarter {
  LeaseState state = LeaseState::gone;  // gone: its own process may use it
  PartyId borrower = 0;
};

struct PoolShare {
  PartyId owner = 0;       // 0: no process has it
  std::uint32_t used = 0;  // slabs from the front, that its process has or waits for
  Time grew_at = 0;        // its process wanted more; without a process: the newest process came to the pool
  std::array<LeasedQuarter, 3> quarters{};  // as Quarters::starts()
};

struct ShareCommand {
  enum Kind : std::uint8_t { grant, recall } kind = grant;
  std::uint32_t share = 0, quarter = 0;  // numbers
  PartyId borrower = 0;
  bool operator==(const ShareCommand&) const = default;
};

/// What to grant and to recall now, in this order. A quarter that its share's process needs is recalled. A quarter of a
/// share that has not grown for half a second (processes that start together soon use their whole shares) is granted to
/// the one of `wanting` that has the fewest; of several, the first. None borrows of itself.
std::vector<ShareCommand> plan_shares(Time now, std::uint32_t slabs_of_share, std::span<const PoolShare> shares,
                                      std::span<const PartyId> wanting);

}  // namespace ebb::planner
