// Lends quarters of shares to processes that could use more than their own, and recalls them.
#include <algorithm>

#include "node/agent.hpp"
#include "node/loans.hpp"

namespace ebb::node {
namespace {

// Processes that start together soon use their whole shares, so a share is lent only after this long without growth.
constexpr std::int64_t kSettled = 500'000'000;

}  // namespace

// Whose a slab of a run is, if it is not the run's own process.
std::optional<Slab> Agent::loan(std::uint32_t first, std::uint32_t run) const {
  const auto slab = pool_.tables().slab(first);
  if (!slab || slab->state == Slab::State::free || slab->owner.slot == run) return {};
  return slab;
}

// All slabs of a quarter change hands together; an agent that was killed meanwhile has left some as they were.
void Agent::complete_loans() {
  if (share_ == 0) return;
  const Quarters quarters(share_);
  for (std::uint32_t run = 0; run < pool_.shape().slabs() / share_; ++run) {
    for (const std::uint32_t start : quarters.starts()) {
      const std::uint32_t first = run * share_ + start;
      std::optional<Slab> found;
      for (std::uint32_t slab = first; slab < first + quarters.slabs() && !found; ++slab) found = loan(slab, run);
      for (std::uint32_t slab = first; found && slab < first + quarters.slabs(); ++slab) {
        if (auto made = pool_.allocate(slab); made) pool_.tables().lend(slab, found->owner);
      }
    }
  }
}

void Agent::rule_loans() {
  if (share_ == 0 || refused_) return;
  const Quarters quarters(share_);
  const std::int64_t now = clock_.now();
  const bool wanted = std::ranges::any_of(peers_, [](const Peer& peer) { return peer.borrows; });
  for (std::uint32_t run = 0; run < pool_.shape().slabs() / share_; ++run) {
    const auto owner = std::ranges::find_if(
        peers_, [&](const Peer& peer) { return peer.process && peer.process->member.slot == run; });
    const std::uint32_t used = owner == peers_.end() ? 0 : std::max(owner->claimed, owner->wanted);
    const bool settled = now - (owner == peers_.end() ? admitted_at_ : owner->grew_at) >= kSettled;
    for (const std::uint32_t start : quarters.starts()) {
      const std::uint32_t first = run * share_ + start;
      const bool lendable = quarters.lendable(start, used);
      if (const auto lent = loan(first, run)) {
        if (!lendable && lent->state == Slab::State::lent) recall_loan(first, quarters.slabs(), lent->owner);
      } else if (wanted && lendable && settled) {
        if (!make_loan(first, quarters.slabs(), run)) break;
      }
    }
  }
}

void Agent::recall_loan(std::uint32_t first, std::uint32_t slabs, Member from) {
  for (std::uint32_t slab = first; slab < first + slabs; ++slab) pool_.tables().recall(slab, from);
  for (Peer& peer : peers_) {
    if (peer.process && peer.process->member == from) send(peer, message::Recall{first});
  }
}

// To the process with the fewest loans. False: no process wants it, or there is no memory.
bool Agent::make_loan(std::uint32_t first, std::uint32_t slabs, std::uint32_t run) {
  const auto loans = [&](const Peer& peer) {
    std::uint32_t count = 0;
    for (std::uint32_t slab = 0; slab < pool_.shape().slabs(); slab += share_) {
      for (const std::uint32_t start : Quarters(share_).starts()) {
        const auto found = loan(slab + start, slab / share_);
        count += found && found->owner == peer.process->member ? 1 : 0;
      }
    }
    return count;
  };
  Peer* to = nullptr;
  for (Peer& peer : peers_) {
    const bool may = peer.borrows && peer.process && peer.connection && !peer.ended && peer.process->member.slot != run;
    if (may && (to == nullptr || loans(peer) < loans(*to))) to = &peer;
  }
  if (to == nullptr) return false;
  for (std::uint32_t slab = first; slab < first + slabs; ++slab) {
    if (!pool_.allocate(slab) || !pool_.tables().lend(slab, to->process->member)) {
      while (slab-- > first) pool_.tables().take_back(slab, to->process->member);
      return false;
    }
  }
  send(*to, message::Lent{first});
  return true;
}

// To a process that an agent before this one had lent something: it may not have heard.
void Agent::tell_loans(Peer& peer) {
  const Quarters quarters(peer.count);
  for (std::uint32_t run = 0; run < pool_.shape().slabs() / peer.count; ++run) {
    for (const std::uint32_t start : quarters.starts()) {
      const std::uint32_t first = run * peer.count + start;
      const auto found = quarters.slabs() > 0 ? loan(first, run) : std::nullopt;
      if (!found || found->owner != peer.process->member) continue;
      send(peer, message::Lent{first});
      if (found->state == Slab::State::recalled) send(peer, message::Recall{first});
    }
  }
}

void Agent::take_back_loan(Peer& peer, std::uint32_t first) {
  const Quarters quarters(share_);
  const std::uint32_t run = first / share_;
  const bool one = first < pool_.shape().slabs() &&
                   std::ranges::any_of(quarters.starts(), [&](std::uint32_t start) { return first % share_ == start; });
  const auto found = one ? loan(first, run) : std::nullopt;
  if (!found || found->owner != peer.process->member) return;
  // One that was not recalled comes back because its process has no use for it: the next would come back as well. One
  // that was leaves room for another.
  peer.borrows = found->state == Slab::State::recalled;
  for (std::uint32_t slab = first; slab < first + quarters.slabs(); ++slab) {
    pool_.tables().take_back(slab, peer.process->member);
  }
  answer_waiting_claims();
}

}  // namespace ebb::node
