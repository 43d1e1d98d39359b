#include "planner/pool_shares.hpp"

#include <map>
#include <optional>

namespace ebb::planner {
namespace {

constexpr Time kSettled = 500'000'000;
constexpr std::uint32_t kSmallestPart = 16;  // of a share: more and smaller leases cost more than they give

struct Gap {
  std::uint32_t first = 0, end = 0;
};

// One pass over the shares.
class SharePlan {
 public:
  SharePlan(Time now, const ShareSizes& sizes, std::span<const PoolShare> shares,
            std::span<const ShareBorrower> borrowers)
      : now_(now), sizes_(sizes), shares_(shares), borrowers_(borrowers) {
    for (const PoolShare& share : shares)
      for (const ShareLease& lease : share.leases) has_[lease.borrower] += lease.slabs;
  }

  std::vector<ShareCommand> make() {
    for (std::uint32_t s = 0; s < shares_.size(); ++s) recall_what_is_short(s);
    for (std::uint32_t s = 0; s < shares_.size(); ++s) grant_what_is_free(s);
    if (!returning_ && !granted_) recall_for_another();
    return std::move(commands_);
  }

 private:
  void recall_what_is_short(std::uint32_t s) {
    for (const ShareLease& lease : shares_[s].leases) {
      returning_ = returning_ || (lease.state != LeaseState::lent && returns(lease.borrower));
      if (lease.state == LeaseState::lent && lease.first < shares_[s].kept()) recall(s, lease);
    }
  }

  void grant_what_is_free(std::uint32_t s) {
    const PoolShare& share = shares_[s];
    if (now_ - share.grew_at < kSettled) return;
    for (Gap gap : gaps_of(share)) {
      for (const ShareBorrower* to = nullptr; (to = neediest(share.owner, gap.end - gap.first)) != nullptr;) {
        const std::uint32_t slabs = part_of(gap, *to);
        gap.end -= slabs;
        commands_.push_back({ShareCommand::grant, s, gap.end, slabs, to->party});
        has_[to->party] += slabs;
        granted_ = true;
      }
    }
  }

  // One that rests has no claim on what it has.
  void recall_for_another() {
    struct Choice {
      std::uint32_t share = 0;
      const ShareLease* lease = nullptr;
      std::uint32_t claim = 0;  // of who has it
    };
    std::optional<Choice> best;
    for (std::uint32_t s = 0; s < shares_.size(); ++s) {
      for (const ShareLease& lease : shares_[s].leases) {
        if (lease.state != LeaseState::lent || !returns(lease.borrower)) continue;
        const ShareBorrower* const to = neediest(shares_[s].owner, lease.slabs, lease.borrower);
        if (to == nullptr || now_ - shares_[s].grew_at < kSettled) continue;
        const std::uint32_t has = has_[lease.borrower], claim = rests(lease.borrower) ? 0 : has;
        const bool leaves_as_much = has_[to->party] + 2 * lease.slabs <= has;
        if (claim > 0 && !leaves_as_much) continue;
        if (!best || (claim == 0 && best->claim > 0) || (best->claim > 0 && claim > best->claim))
          best = {s, &lease, claim};
      }
    }
    if (best) recall(best->share, *best->lease);
  }

  void recall(std::uint32_t s, const ShareLease& lease) {
    commands_.push_back({ShareCommand::recall, s, lease.first, lease.slabs, lease.borrower});
    returning_ = returning_ || returns(lease.borrower);
  }

  // From the end of the share.
  std::vector<Gap> gaps_of(const PoolShare& share) const {
    std::vector<ShareLease> leases = share.leases;
    std::ranges::sort(leases, std::ranges::greater{}, &ShareLease::first);
    std::vector<Gap> gaps;
    std::uint32_t end = sizes_.slabs;
    const auto add = [&](std::uint32_t first) {
      if (first < end) gaps.push_back({first, end});
    };
    for (const ShareLease& lease : leases) {
      add(std::max(share.kept(), lease.first + lease.slabs));
      end = lease.first;
    }
    add(share.kept());
    return gaps;
  }

  // Of those that produce, and to which so much is of use.
  const ShareBorrower* neediest(PartyId owner, std::uint32_t slabs, PartyId besides = 0) {
    const ShareBorrower* found = nullptr;
    for (const ShareBorrower& one : borrowers_) {
      if (!one.wants || one.party == owner || one.party == besides) continue;
      if (rests(one.party) || slabs < least(one)) continue;
      if (found == nullptr || has_[one.party] < has_[found->party]) found = &one;
    }
    return found;
  }

  bool rests(PartyId party) const {
    const auto found = std::ranges::find(borrowers_, party, &ShareBorrower::party);
    return found == borrowers_.end() || now_ - found->produced_at >= kBorrowerRests;
  }

  bool returns(PartyId party) const {
    const auto found = std::ranges::find(borrowers_, party, &ShareBorrower::party);
    return found == borrowers_.end() || found->returns;
  }

  std::uint32_t least(const ShareBorrower& to) const {
    return std::max({1u, to.largest, sizes_.slabs / kSmallestPart});
  }

  std::uint32_t part_of(const Gap& gap, const ShareBorrower& to) const {
    const std::uint32_t all = gap.end - gap.first, half = all / 2;
    const std::uint32_t part = half >= std::max(2 * to.largest, least(to)) ? all - half : all;
    return std::min(part, std::max(sizes_.in_time, least(to)));
  }

  const Time now_;
  const ShareSizes& sizes_;
  const std::span<const PoolShare> shares_;
  const std::span<const ShareBorrower> borrowers_;
  std::map<PartyId, std::uint32_t> has_;  // slabs on lease
  bool returning_ = false, granted_ = false;
  std::vector<ShareCommand> commands_;
};

}  // namespace

std::vector<ShareCommand> plan_shares(Time now, const ShareSizes& sizes, std::span<const PoolShare> shares,
                                      std::span<const ShareBorrower> borrowers) {
  return SharePlan(now, sizes, shares, borrowers).make();
}

}  // namespace ebb::planner
