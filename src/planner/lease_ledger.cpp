#include "planner/lease_ledger.hpp"

#include <algorithm>
#include <optional>
#include <ranges>
#include <stdexcept>
#include <string>
#include <utility>

namespace ebb::planner {
namespace {

void check_piece(Bytes piece) {
  if (piece < kSmallestLease)
    throw std::logic_error("leases of " + std::to_string(piece) + " bytes: expected at least " +
                           std::to_string(kSmallestLease));
}

}  // namespace

std::vector<LeaseCommand> LeaseLedger::on(Time now, const lease_event::Any& event) {
  out_.clear();
  std::visit([this](const auto& e) { apply(e); }, event);
  std::erase_if(lenders_, [this](const auto& one) { return one.second.bytes == 0 && lent_by(one.first) == 0; });
  tell_overdue(now);
  grant_what_fits();
  return std::exchange(out_, {});
}

void LeaseLedger::apply(const lease_event::Offer& e) {
  check_piece(e.piece);
  if (e.link > kWholeLink)
    throw std::logic_error(std::to_string(e.link) + " millionths of a link are lent: expected at most 1000000");
  lenders_[e.lender] = {e.bytes, e.piece, e.link};
  recall_beyond(e.lender, e.deadline);
}

void LeaseLedger::apply(const lease_event::Borrow& e) {
  check_piece(e.piece);
  Borrower& borrower = borrowers_[e.borrower];
  if (borrower.dead) return;
  borrower.wanted = e.bytes;
  borrower.piece = e.piece;
}

void LeaseLedger::apply(const lease_event::Return& e) {
  const auto found = leases_.find(e.lease);
  if (found == leases_.end() || found->second.state == LeaseState::orphaned) return;
  if (e.unusable) borrowers_[found->second.borrower].unusable.push_back(found->second.lender);
  end(e.lease);
}

void LeaseLedger::apply(const lease_event::Recall& e) {
  const auto found = leases_.find(e.lease);
  if (found == leases_.end()) return;
  Lease& lease = found->second;
  Bytes& offered = lenders_.at(lease.lender).bytes;
  if (lease.state == LeaseState::lent) offered -= std::min(offered, lease.bytes);
  recall(lease, e.deadline);
}

void LeaseLedger::apply(const lease_event::BorrowerDied& e) {
  borrowers_[e.borrower].dead = true;
  for (Lease& lease : leases_ | std::views::values) {
    if (lease.borrower == e.borrower && lease.state != LeaseState::orphaned)
      lease.state = transition(lease.state, LeaseState::orphaned);
  }
}

void LeaseLedger::apply(const lease_event::BorrowerEnded& e) {
  apply(lease_event::BorrowerDied{e.borrower});
  std::vector<LeaseId> ending;
  for (const auto& [id, lease] : leases_)
    if (lease.borrower == e.borrower) ending.push_back(id);
  for (const LeaseId id : ending) end(id);
  borrowers_.erase(e.borrower);
}

void LeaseLedger::apply(const lease_event::LenderDied& e) {
  if (const auto found = lenders_.find(e.lender); found != lenders_.end()) found->second.bytes = 0;
  recall_beyond(e.lender, e.deadline);
}

// One lease at a time, to the borrower that has the least, from the lender that has the most to give: so that all of
// them have something, and their links are used alike.
void LeaseLedger::grant_what_fits() {
  while (grant_one()) {
  }
}

bool LeaseLedger::grant_one() {
  struct Pair {
    Bytes has = 0, room = 0, piece = 0;
    PartyId borrower = 0, lender = 0;
    bool better_than(const Pair& other) const { return has != other.has ? has < other.has : room > other.room; }
  };
  std::optional<Pair> best;
  for (const auto& [borrower, b] : borrowers_) {
    const Bytes has = borrowed_by(borrower);
    for (const auto& [lender, l] : lenders_) {
      const Bytes lent = lent_by(lender);
      const Bytes piece = std::min(l.piece, b.piece);
      if (b.dead || has + piece > b.wanted || lent + piece > l.bytes || !may_lend(lender, borrower)) continue;
      const Pair pair{has, l.bytes - lent, piece, borrower, lender};
      if (!best || pair.better_than(*best)) best = pair;
    }
  }
  if (!best) return false;
  const Lease lease{++last_, best->lender, best->borrower, best->piece, transition(LeaseState::gone, LeaseState::lent)};
  say(LeaseCommand::grant, leases_[lease.id] = lease);
  return true;
}

bool LeaseLedger::may_lend(PartyId lender, PartyId borrower) const {
  return lender != borrower &&
         std::ranges::find(borrowers_.at(borrower).unusable, lender) == borrowers_.at(borrower).unusable.end();
}

void LeaseLedger::recall(Lease& lease, Time deadline) {
  if (lease.state == LeaseState::lent) {
    lease.state = transition(lease.state, LeaseState::recalled);
    lease.deadline = deadline;
    say(LeaseCommand::recall, lease);
  } else if (lease.state != LeaseState::overdue) {
    lease.deadline = std::min(lease.deadline, deadline);
  }
}

// A lease that is on its way back counts as returned: it will be.
void LeaseLedger::recall_beyond(PartyId lender, Time deadline) {
  Bytes stays = 0;
  for (Lease& lease : leases_ | std::views::values) {
    if (lease.lender != lender || lease.state != LeaseState::lent) continue;
    if (stays + lease.bytes <= lenders_[lender].bytes) {
      stays += lease.bytes;
    } else {
      recall(lease, deadline);
    }
  }
}

void LeaseLedger::end(LeaseId id) {
  auto node = leases_.extract(id);
  Lease& lease = node.mapped();
  lease.state = transition(lease.state, LeaseState::gone);
  say(LeaseCommand::free, lease);
}

void LeaseLedger::tell_overdue(Time now) {
  for (Lease& lease : leases_ | std::views::values) {
    if (lease.deadline > now) continue;
    lease.deadline = kNever;
    if (lease.state == LeaseState::recalled) lease.state = transition(lease.state, LeaseState::overdue);
    say(LeaseCommand::overdue, lease);
  }
}

Time LeaseLedger::next_deadline() const {
  Time next = kNever;
  for (const Lease& lease : leases_ | std::views::values) next = std::min(next, lease.deadline);
  return next;
}

Bytes LeaseLedger::bytes_of(const std::function<bool(const Lease&)>& which) const {
  Bytes sum = 0;
  for (const Lease& lease : leases_ | std::views::values) sum += which(lease) ? lease.bytes : 0;
  return sum;
}

Bytes LeaseLedger::lent_by(PartyId lender) const {
  return bytes_of([&](const Lease& lease) { return lease.lender == lender; });
}

Bytes LeaseLedger::borrowed_by(PartyId borrower) const {
  return bytes_of([&](const Lease& lease) { return lease.borrower == borrower; });
}

std::uint32_t LeaseLedger::link_of(PartyId lender, PartyId borrower) const {
  const Bytes has = bytes_of([&](const Lease& lease) { return lease.lender == lender && lease.borrower == borrower; });
  if (has == 0) return 0;
  return std::max(1u, static_cast<std::uint32_t>(lenders_.at(lender).link * has / lent_by(lender)));
}

}  // namespace ebb::planner
