// Leases of the agent: quarters of shares, for processes that could use more than their own.
#include <algorithm>

#include "planner/pool_shares.hpp"
#include "share/agent/agent.hpp"

namespace ebb::share {
namespace {

// A process as the planner names it. A slot has a new process only once nothing is on lease to the one before.
planner::PartyId party_of(Member member) { return member.slot + 1; }

}  // namespace

// Whose a slab of a run is, if it is not the run's own process.
std::optional<Slab> Agent::leased(std::uint32_t first, std::uint32_t run) const {
  const auto slab = pool_.tables().slab(first);
  if (!slab || slab->state == Slab::State::free || slab->owner.slot == run) return {};
  return slab;
}

// Calls `f(run, first)` with the number of each share's run and the first slab of each quarter that may be lent.
template <class F>
void Agent::for_each_quarter(std::uint32_t share, F&& f) const {
  const planner::Quarters quarters(share);
  if (quarters.slabs() == 0) return;
  for (std::uint32_t run = 0; run < pool_.shape().slabs() / share; ++run) {
    for (const std::uint32_t start : quarters.starts()) f(run, run * share + start);
  }
}

// All slabs of a quarter change hands together; an agent that was killed meanwhile has left some as they were.
void Agent::complete_leases() {
  if (share_ == 0) return;
  const std::uint32_t slabs = planner::Quarters(share_).slabs();
  for_each_quarter(share_, [&](std::uint32_t run, std::uint32_t first) {
    std::optional<Slab> found;
    for (std::uint32_t slab = first; slab < first + slabs && !found; ++slab) found = leased(slab, run);
    for (std::uint32_t slab = first; found && slab < first + slabs; ++slab) {
      if (auto made = pool_.allocate(slab); made) pool_.tables().lend(slab, found->owner);
    }
  });
}

std::vector<planner::PoolShare> Agent::shares() const {
  std::vector<planner::PoolShare> shares(pool_.shape().slabs() / share_, {.grew_at = admitted_at_});
  for (const Peer& peer : peers_) {
    if (!peer.process || peer.process->member.slot >= shares.size()) continue;
    planner::PoolShare& share = shares[peer.process->member.slot];
    share.owner = party_of(peer.process->member);
    share.used = std::max(peer.claimed, peer.wanted);
    share.grew_at = peer.grew_at;
  }
  std::size_t next = 0;
  for_each_quarter(share_, [&](std::uint32_t run, std::uint32_t first) {
    auto& quarter = shares[run].quarters[next++ % 3];
    const auto slab = leased(first, run);
    if (!slab) return;
    quarter.state = slab->state == Slab::State::recalled ? planner::LeaseState::recalled : planner::LeaseState::lent;
    quarter.borrower = party_of(slab->owner);
  });
  return shares;
}

void Agent::share_out() {
  if (share_ == 0 || refused_) return;
  std::vector<planner::PartyId> wanting;
  for (const Peer& peer : peers_) {
    if (peer.borrows && peer.process && peer.connection && !peer.ended)
      wanting.push_back(party_of(peer.process->member));
  }
  const planner::Quarters quarters(share_);
  bool memory = true;
  for (const planner::ShareCommand& command : planner::plan_shares(clock_.now(), share_, shares(), wanting)) {
    const std::uint32_t first = command.share * share_ + quarters.starts()[command.quarter];
    if (command.kind == planner::ShareCommand::recall) {
      recall_lease(first, quarters.slabs(), leased(first, command.share)->owner);
    } else if (memory) {
      memory = grant_lease(first, quarters.slabs(), command.borrower);
    }
  }
}

void Agent::recall_lease(std::uint32_t first, std::uint32_t slabs, Member from) {
  for (std::uint32_t slab = first; slab < first + slabs; ++slab) pool_.tables().recall(slab, from);
  for (Peer& peer : peers_) {
    if (peer.process && peer.process->member == from) send(peer, message::Recall{first});
  }
}

// False: there is no memory.
bool Agent::grant_lease(std::uint32_t first, std::uint32_t slabs, planner::PartyId borrower) {
  const auto to = std::ranges::find_if(
      peers_, [&](const Peer& peer) { return peer.process && party_of(peer.process->member) == borrower; });
  const Member member = to->process->member;
  for (std::uint32_t slab = first; slab < first + slabs; ++slab) {
    if (!pool_.allocate(slab) || !pool_.tables().lend(slab, member)) {
      while (slab-- > first) pool_.tables().take_back(slab, member);
      return false;
    }
  }
  send(*to, message::Granted{first, slabs * pool_.shape().slab_bytes()});
  return true;
}

// To a process that an agent before this one had lent something: it may not have heard.
void Agent::tell_leases(Peer& peer) {
  const std::uint64_t bytes = planner::Quarters(peer.count).slabs() * pool_.shape().slab_bytes();
  for_each_quarter(peer.count, [&](std::uint32_t run, std::uint32_t first) {
    const auto found = leased(first, run);
    if (!found || found->owner != peer.process->member) return;
    send(peer, message::Granted{first, bytes});
    if (found->state == Slab::State::recalled) send(peer, message::Recall{first});
  });
}

void Agent::take_back_lease(Peer& peer, std::uint32_t first) {
  std::optional<Slab> found;
  for_each_quarter(share_, [&](std::uint32_t run, std::uint32_t start) {
    if (start == first) found = leased(first, run);
  });
  if (!found || found->owner != peer.process->member) return;
  // One that was not recalled comes back because its process has no use for it: the next would come back as well. One
  // that was leaves room for another.
  peer.borrows = found->state == Slab::State::recalled;
  for (std::uint32_t slab = first; slab < first + planner::Quarters(share_).slabs(); ++slab) {
    pool_.tables().take_back(slab, peer.process->member);
  }
  answer_waiting_claims();
}

}  // namespace ebb::share
