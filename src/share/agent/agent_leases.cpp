// Leases of the agent: what processes do not use of their shares, for those that could use more.
#include <algorithm>

#include "planner/pool_shares.hpp"
#include "share/agent/agent.hpp"

namespace ebb::share {
namespace {

// A process as the planner names it. A slot has a new process only once nothing is on lease to the one before.
planner::PartyId party_of(Member member) { return member.slot + 1; }

}  // namespace

const Agent::Lease* Agent::lease_at(std::uint32_t slab) const {
  const auto found = std::ranges::find_if(
      leases_, [&](const Lease& lease) { return slab >= lease.first && slab - lease.first < lease.slabs; });
  return found == leases_.end() ? nullptr : &*found;
}

// What an agent before this one had lent. The first slab of a lease is lent last and taken back first: without it, the
// rest of the lease is nobody's.
void Agent::adopt_leases() {
  if (share_ == 0) return;
  for (std::uint32_t slab = 0; slab < pool_.shape().slabs() / share_ * share_; ++slab) {
    const auto found = pool_.tables().slab(slab);
    if (!found || found->state == SlabState::free || found->owner.slot == slab / share_) continue;
    Lease* const last = leases_.empty() ? nullptr : &leases_.back();
    const bool goes_on =
        last != nullptr && slab == last->first + last->slabs && slab % share_ != 0 && found->owner == last->borrower;
    if (found->begins) {
      leases_.push_back({slab, 1, found->owner, found->state == SlabState::recalled});
    } else if (goes_on) {
      ++last->slabs;
      if (last->recalled) pool_.tables().recall(slab, last->borrower);
    } else if (pool_.tables().take_back(slab, found->owner)) {
      static_cast<void>(pool_.punch(slab));
    }
  }
  for (Peer& peer : peers_) {
    std::uint32_t first = peer.count;
    for (const Lease& lease : leases_)
      if (lease.first / share_ == peer.process->member.slot) first = std::min(first, lease.first % share_);
    peer.kept_free = std::min(planner::reserve_of(0, peer.count), first - std::min(first, peer.claimed));
    note_room(peer);
  }
}

std::vector<planner::PoolShare> Agent::shares() const {
  std::vector<planner::PoolShare> shares(pool_.shape().slabs() / share_,
                                         {.reserve = planner::reserve_of(0, share_), .grew_at = admitted_at_});
  for (const Peer& peer : peers_) {
    if (!peer.process || peer.process->member.slot >= shares.size()) continue;
    planner::PoolShare& share = shares[peer.process->member.slot];
    share.owner = party_of(peer.process->member);
    share.used = std::max(peer.claimed, peer.wanted);
    share.reserve = peer.largest == 0 ? peer.kept_free : planner::reserve_of(slabs_of(peer.largest), share_);
    share.grew_at = peer.grew_at;
  }
  for (const Lease& lease : leases_) {
    const auto state = lease.recalled ? planner::LeaseState::recalled : planner::LeaseState::lent;
    shares[lease.first / share_].leases.push_back({lease.first % share_, lease.slabs, state, party_of(lease.borrower)});
  }
  return shares;
}

void Agent::share_out() {
  if (share_ == 0 || refused_) return;
  const planner::Time now = clock_.now();
  std::vector<planner::ShareBorrower> borrowers;
  for (const Peer& peer : peers_) {
    if (!peer.process) continue;
    const Member member = peer.process->member;
    const bool wants = peer.borrows && peer.connection && !peer.ended;
    const bool asked =
        std::ranges::any_of(leases_, [&](const Lease& lease) { return lease.recalled && lease.borrower == member; });
    const bool stopped = asked && !peer.ended && os::is_stopped(files_, peer.process->process.pid);
    borrowers.push_back({.party = party_of(member),
                         .wants = wants,
                         .largest = std::max(1u, slabs_of(peer.largest)),
                         // What is in memory alone is never handed over.
                         .produced_at = pool_.header().store.none() ? now : peer.produced_at,
                         .returns = !stopped && stuck(peer) == nullptr});
  }
  const double in_time = writer_->bytes_per_s() * static_cast<double>(planner::kReturnWithin) * 1e-9;
  const planner::ShareSizes sizes{.slabs = share_, .in_time = slabs_of(static_cast<std::uint64_t>(in_time))};
  bool memory = true;
  for (const planner::ShareCommand& command : planner::plan_shares(now, sizes, shares(), borrowers)) {
    const std::uint32_t first = command.share * share_ + command.first;
    if (command.kind == planner::ShareCommand::recall) {
      recall_lease(first);
    } else if (memory) {
      memory = grant_lease(first, command.slabs, command.borrower);
    }
  }
}

void Agent::recall_lease(std::uint32_t first) {
  const auto lease = std::ranges::find(leases_, first, &Lease::first);
  lease->recalled = true;
  for (std::uint32_t slab = first; slab < first + lease->slabs; ++slab) pool_.tables().recall(slab, lease->borrower);
  for (Peer& peer : peers_) {
    if (!peer.process || peer.process->member != lease->borrower) continue;
    send(peer, message::Recall{first});
    note_room(peer);
  }
}

// False: there is no memory.
bool Agent::grant_lease(std::uint32_t first, std::uint32_t slabs, planner::PartyId borrower) {
  const auto to = std::ranges::find_if(
      peers_, [&](const Peer& peer) { return peer.process && party_of(peer.process->member) == borrower; });
  const Member member = to->process->member;
  for (std::uint32_t slab = first + slabs; slab-- > first;) {
    if (pool_.allocate(slab) && pool_.tables().lend(slab, member, slab == first)) continue;
    for (++slab; slab < first + slabs; ++slab) pool_.tables().take_back(slab, member);
    return false;
  }
  tell(*to, leases_.emplace_back(Lease{first, slabs, member}));
  note_room(*to);
  return true;
}

// To a process that an agent before this one had lent something: it may not have heard.
void Agent::tell_leases(Peer& peer) {
  for (Lease& lease : leases_)
    if (lease.borrower == peer.process->member) tell(peer, lease);
}

void Agent::tell(Peer& peer, Lease& lease) {
  lease.granted = ++granted_;
  send(peer, message::Granted{lease.first, lease.slabs * pool_.shape().slab_bytes(), lease.granted});
  if (lease.recalled) send(peer, message::Recall{lease.first});
}

// What its process returned before it had heard the last of it stays lent: it comes to the process as a new lease, with
// all that was said of it since, and is returned again.
void Agent::take_back_lease(Peer& peer, const message::Return& returned) {
  const auto lease = std::ranges::find(leases_, returned.lease, &Lease::first);
  if (lease == leases_.end() || lease->borrower != peer.process->member || lease->granted != returned.granted) return;
  // One that was not recalled comes back because its process has no use for it: the next would come back as well. One
  // that was leaves room for another.
  peer.borrows = lease->recalled;
  for (std::uint32_t slab = lease->first; slab < lease->first + lease->slabs; ++slab)
    pool_.tables().take_back(slab, peer.process->member);
  leases_.erase(lease);
  note_room(peer);
  answer_waiting_claims();
}

// What a process can fill without waiting: what was recalled is to be emptied.
void Agent::note_room(const Peer& peer) {
  std::uint64_t slabs = peer.count;
  for (const Lease& lease : leases_)
    if (lease.borrower == peer.process->member && !lease.recalled) slabs += lease.slabs;
  if (writer_) writer_->set_room(peer.process->member, slabs * pool_.shape().slab_bytes());
}

std::uint32_t Agent::slabs_of(std::uint64_t bytes) const {
  const std::uint64_t slab = pool_.shape().slab_bytes();
  return static_cast<std::uint32_t>(std::min<std::uint64_t>((bytes + slab - 1) / slab, pool_.shape().slabs()));
}

}  // namespace ebb::share
