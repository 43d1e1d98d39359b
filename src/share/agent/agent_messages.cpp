// What the processes of a pool say to its agent, and what it sends them.
#include <algorithm>
#include <array>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "share/agent/agent.hpp"

namespace ebb::share {
namespace {

constexpr std::size_t kMostAnswers = 256;  // that wait for one process, which is not listened to meanwhile

// A file in memory that no process can shorten: no access to it ends in a signal.
bool is_stage(int fd, std::uint64_t bytes) {
  struct stat found{};
  const int seals = ::fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && ::fstat(fd, &found) == 0 && bytes > 0 &&
         bytes <= static_cast<std::uint64_t>(found.st_size);
}

}  // namespace

bool Agent::wait(milliseconds limit) {
  std::vector<os::Waiting> all{{bell_.fd()}};
  if (listener_) all.push_back({listener_->fd()});
  for (const Peer& peer : peers_) {
    if (peer.connection) {
      all.push_back({peer.connection->fd(), !peer.outgoing.empty(), false, peer.outgoing.size() < kMostAnswers});
    }
    if (peer.process && peer.pidfd && !peer.ended) all.push_back({peer.pidfd.fd()});
  }
  if (!seams_.sockets->wait(all, limit)) return false;
  std::uint64_t rung = 0;
  static_cast<void>(!::read(bell_.fd(), &rung, sizeof rung));
  if (listener_) accept();
  for (Peer& peer : peers_) {
    flush(peer);
    for (std::size_t n = 0; n < message::kMostInARow && peer.connection && peer.outgoing.size() < kMostAnswers; ++n) {
      if (!receive(peer)) break;
    }
  }
  std::erase_if(peers_, [](const Peer& peer) { return !peer.process && !peer.connection; });
  return true;
}

void Agent::accept() {
  for (;;) {
    auto connection = listener_->accept();
    if (!connection || !*connection) return;
    Peer& peer = peers_.emplace_back();
    peer.connection = std::move(*connection);
  }
}

// False: nothing came.
bool Agent::receive(Peer& peer) {
  std::array<std::byte, os::kMaxMessage> buffer;
  auto received = peer.connection->receive(buffer);
  if (!received || received->kind == os::Received::Kind::closed) {
    peer.connection.reset();
    peer.outgoing.clear();
    peer.look = peer.process.has_value();
    return false;
  }
  if (received->kind == os::Received::Kind::nothing) return false;
  const auto message = message::parse({buffer.data(), received->bytes});
  if (!message) {
    send(peer, message::Refused{message.error()});
    peer.connection.reset();
    return false;
  }
  on(peer, *message, std::move(received->descriptor));
  return true;
}

void Agent::on(Peer& peer, const message::Any& message, os::OwnDescriptor descriptor) {
  if (const auto* hello = std::get_if<message::Hello>(&message)) {
    if (peer.process) return;
    if (peer.connection->peer() == 0) {
      send(peer, message::Refused{of_another_namespace()});
      peer.connection.reset();
      return;
    }
    const auto process = os::LocalSockets::process_of(descriptor);
    if (!process || *process != peer.connection->peer()) {
      send(peer, message::Refused{{Errc::invalid_argument,
                                   "process " + std::to_string(peer.connection->peer()) +
                                       " asks for a place in the pool: expected a pidfd of itself with its message"}});
      peer.connection.reset();
      return;
    }
    peer.hello = *hello;
    peer.pidfd = std::move(descriptor);
    return;
  }
  if (!peer.process || peer.ended) return;
  const Member member = peer.process->member;
  if (const auto* claim = std::get_if<message::Claim>(&message)) {
    const std::uint32_t wanted = std::min(claim->slabs, peer.count);
    if (wanted > peer.wanted) peer.grew_at = clock_.now();
    peer.wanted = std::max(peer.wanted, wanted);
    answer_claim(peer);
  } else if (std::holds_alternative<message::Look>(message)) {
    peer.look = true;
  } else if (const auto* drop = std::get_if<message::Drop>(&message)) {
    if (peer.look) take_entries(peer);
    if (!pool_.header().store.none()) writer_->drop(member, *drop);
    peer.drops.push_back({drop->number, drop->object});
  } else if (const auto* stage = std::get_if<message::Stage>(&message)) {
    if (!descriptor || !is_stage(descriptor.fd(), stage->bytes)) return;
    os::DescriptorSharedFile file(std::move(descriptor), "the stage of a process");
    auto mapped = file.map(std::array{os::FileRange{0, stage->bytes}});
    if (mapped && peer.stage.size() == 0) peer.stage = std::move(*mapped);
  } else if (const auto* piece = std::get_if<message::Staged>(&message)) {
    const bool inside = !pool_.header().store.none() && piece->at % os::kBlock == 0 && piece->at <= peer.stage.size() &&
                        os::round_up(piece->bytes) <= peer.stage.size() - piece->at;
    if (inside && stop_ && !writer_->has(member, piece->object)) return;  // its process gives it to the next agent
    if (inside) return writer_->add_piece(member, *piece, peer.stage.data() + piece->at);
    send(peer, message::Moved{piece->object, piece->offset, {Errc::damaged, "a piece is not in the process's stage"}});
  } else if (std::holds_alternative<message::Commit>(message)) {
    writer_->commit(member);
  } else if (std::holds_alternative<message::Borrow>(message)) {
    peer.borrows = true;
  } else if (const auto* returned = std::get_if<message::Return>(&message)) {
    take_back_lease(peer, *returned);
  } else if (std::holds_alternative<message::Leave>(message)) {
    pool_.tables().leave(member);
    peer.ended = peer.look = true;
  }
}

void Agent::send(Peer& peer, const message::Any& message) {
  if (!peer.connection) return;
  peer.outgoing.push_back(message::encode(message));
  flush(peer);
}

void Agent::flush(Peer& peer) {
  while (peer.connection && !peer.outgoing.empty()) {
    const auto sent = peer.connection->send(peer.outgoing.front());
    if (sent && !*sent) return;
    peer.outgoing.pop_front();  // of a closed connection too: what is left there is received first
  }
}

}  // namespace ebb::share
