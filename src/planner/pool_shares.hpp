#pragma once
// Who uses what of the shares of a node's pool: the rule by which its agent lends and recalls.
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "planner/ids.hpp"
#include "planner/lease_ledger.hpp"

namespace ebb::planner {

/// A run of slabs of a share that another process has.
struct ShareLease {
  std::uint32_t first = 0, slabs = 0;  // in the share
  LeaseState state = LeaseState::lent;
  PartyId borrower = 0;
};

struct PoolShare {
  PartyId owner = 0;          // 0: no process has it
  std::uint32_t used = 0;     // slabs from the front, that its process has or waits for
  std::uint32_t reserve = 0;  // slabs: reserve_of() the owner's checkpoints
  Time grew_at = 0;           // its process wanted more; without a process: the newest process came to the pool
  std::vector<ShareLease> leases = {};

  /// What is never lent, and recalled if it is: between what the process uses and what others have, its reserve is free
  /// or on its way back, so that the process goes on while others make room.
  std::uint32_t kept() const { return used + reserve; }
};

/// A process of the pool.
struct ShareBorrower {
  PartyId party = 0;
  bool wants = false;         // it could use more than its share, and what it has on lease
  std::uint32_t largest = 1;  // slabs of its largest checkpoint: a smaller lease has no use
  Time produced_at = 0;       // it last had something to be written
  bool returns = true;        // what is recalled; not: it is stopped, or has ended and cannot be written
};

struct ShareSizes {
  std::uint32_t slabs = 0;             // of each share
  std::uint32_t in_time = UINT32_MAX;  // that the agent writes within kReturnWithin
};

struct ShareCommand {
  enum Kind : std::uint8_t { grant, recall } kind = grant;
  std::uint32_t share = 0, first = 0, slabs = 0;  // the number of the share; in the share
  PartyId borrower = 0;
  bool operator==(const ShareCommand&) const = default;
};

inline constexpr Time kBorrowerRests = 5'000'000'000;  // without anything to be written: others come first

/// Slabs that hold two checkpoints of so many slabs; of an unknown size (0), a quarter of a share.
inline std::uint32_t reserve_of(std::uint32_t largest, std::uint32_t share) {
  return largest == 0 ? std::max(1u, share / 4) : std::min(share, 2 * largest);
}

/// What to grant and to recall now, in this order.
/// 1. What an owner is short of (PoolShare::kept()) is recalled.
/// 2. All that is beyond that in a share that has not grown for half a second (processes that start together soon use
///    their whole shares) is granted to those that produce, the one that has the least first. None borrows of itself.
///    The half at the end is granted first, then half of what is left, as long as two of the borrower's checkpoints fit
///    there: what comes back first is the smallest. No lease is larger than what is written within kReturnWithin, but
///    for one checkpoint.
/// 3. Where nothing is free, and nothing is on its way back from one that returns it, one lease of a borrower that
///    rests is recalled for one that produces, or of the one that has the most, if it has no less than the other
///    afterwards. So leases stay where they are as long as all produce.
std::vector<ShareCommand> plan_shares(Time now, const ShareSizes& sizes, std::span<const PoolShare> shares,
                                      std::span<const ShareBorrower> borrowers);

}  // namespace ebb::planner
