// Who comes into a pool, and the memory of its share.
#include <algorithm>

#include "share/agent/agent.hpp"

namespace ebb::share {

void Agent::answer(Peer& peer) {
  const message::Hello hello = *peer.hello;
  if (refused_) {
    send(peer, message::Refused{*refused_});
    peer.hello.reset();
    served_ = true;
    return;
  }
  // The member of an agent before this one: what is known of it becomes this connection's.
  if (Peer* const old = member_of(hello)) {
    old->connection = std::move(peer.connection);
    old->pidfd = std::move(peer.pidfd);
    old->rank = hello.rank;
    old->look = true;
    peer.hello.reset();
    send(*old, message::Welcome{old->process->member, old->first, old->count, number_, program_});
    tell_leases(*old);
    return;
  }
  if (dead_have_left_something()) return;  // later
  for (const Peer& dead : peers_) {
    const Error* const why = stuck(dead);
    if (why == nullptr) continue;
    send(peer,
         message::Refused{{why->code, "what process " + std::to_string(dead.process->process.pid) +
                                          ", which has ended, left in the pool cannot be written: " + why->message}});
    peer.hello.reset();
    served_ = true;
    return;
  }
  peer.hello.reset();
  auto welcome =
      hello.member.generation != 0
          ? Result<message::Welcome>(Error{Errc::lost, "this process is no member of the node's pool any more"})
          : admit(peer, hello);
  if (!welcome) {
    send(peer, message::Refused{welcome.error()});
    return;
  }
  send(peer, *welcome);
  served_ = true;
}

Agent::Peer* Agent::member_of(const message::Hello& hello) {
  for (Peer& peer : peers_) {
    if (peer.process && !peer.ended && !peer.connection && peer.process->member == hello.member &&
        peer.process->process == hello.process) {
      return &peer;
    }
  }
  return nullptr;
}

Result<message::Welcome> Agent::admit(Peer& peer, const message::Hello& hello) {
  if (auto same = check_same(pool_.header(), hello.wanted); !same) return same.error();
  for (const Peer& other : peers_) {
    if (other.process && !other.ended && other.pidfd && other.rank == hello.rank) {
      return Error{Errc::in_use, "rank " + std::to_string(hello.rank) +
                                     " of this job is in the pool already, as process " +
                                     std::to_string(other.process->process.pid) +
                                     ": expected another rank for each process (a launcher's, or EBBTIDE_RANK)"};
    }
  }
  const PoolShape& shape = pool_.shape();
  const auto slabs = static_cast<std::uint32_t>(shape.slabs() / std::max<std::uint64_t>(hello.ranks, 1));
  const bool alone = std::ranges::none_of(peers_, [](const Peer& other) { return other.process.has_value(); });
  if (!alone && slabs != share_) {
    return Error{Errc::invalid_argument, "the pool is shared by " + std::to_string(shape.slabs() / share_) +
                                             " processes of this node, and rank " + std::to_string(hello.rank) +
                                             " counts " + std::to_string(hello.ranks) +
                                             ": expected the same number of each (a launcher's, or LOCAL_WORLD_SIZE)"};
  }
  const auto place = pool_.tables().next_member();
  if (!place || slabs == 0 || place->slot >= shape.slabs() / slabs) {
    return Error{Errc::no_space, "the pool of " + std::to_string(shape.budget) + " bytes has a share for each of " +
                                     std::to_string(hello.ranks) + " processes, and all are taken"};
  }
  const auto member = pool_.admit(hello.process, std::uint64_t{slabs} * shape.slab_bytes(), hello.rank);
  if (!member) return member.error();
  auto list = pool_.list(*member);
  if (!list) {
    static_cast<void>(pool_.dismiss(*member));
    return list.error();
  }
  peer.list.emplace(std::move(*list));
  peer.process = PoolProcess{*member, hello.process, std::uint64_t{slabs} * shape.slab_bytes(), hello.rank};
  peer.rank = hello.rank;
  peer.count = share_ = slabs;
  peer.first = member->slot * slabs;
  peer.wanted = 1;  // for descriptions
  peer.kept_free = planner::reserve_of(0, slabs);
  peer.grew_at = peer.produced_at = admitted_at_ = clock_.now();
  note_room(peer);
  if (auto lent = lend(peer); !lent) {
    peer.ended = true;
    return lent.error();
  }
  return message::Welcome{*member, peer.first, peer.count, number_, program_};
}

// As far as it wants, and nothing of it is lent.
Result<void> Agent::lend(Peer& peer) {
  while (peer.claimed < peer.wanted) {
    const std::uint32_t slab = peer.first + peer.claimed;
    if (lease_at(slab) != nullptr) return {};
    if (auto done = pool_.allocate(slab); !done) return done;
    const auto now = pool_.tables().slab(slab);
    const bool owned = now && now->state == SlabState::lent && now->owner == peer.process->member;
    if (!owned && !pool_.tables().lend(slab, peer.process->member)) {
      return Error{Errc::damaged, "slab " + std::to_string(slab) + " of the pool is not free, and has no owner"};
    }
    ++peer.claimed;
  }
  return {};
}

// Later, while some of it is being returned.
void Agent::answer_claim(Peer& peer) {
  const auto lent = lend(peer);
  if (!lent) peer.wanted = peer.claimed;
  if (peer.claimed >= peer.wanted) send(peer, message::Claimed{peer.claimed, lent ? Error{} : lent.error()});
}

// Something that was lent has come back.
void Agent::answer_waiting_claims() {
  for (Peer& peer : peers_) {
    if (peer.process && !peer.ended && peer.wanted > peer.claimed) answer_claim(peer);
  }
}

}  // namespace ebb::share
