#include "share/leases/lenders.hpp"

#include <algorithm>
#include <array>
#include <ranges>
#include <stdexcept>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/start_thread.hpp"
#include "device/peer_probe.hpp"
#include "share/leases/lender.hpp"

namespace ebb::share {

namespace message = message;
using std::chrono::milliseconds;

namespace {

constexpr milliseconds kFind{500};  // between looks for lenders
constexpr std::size_t kProbed = std::size_t{4} << 20;

}  // namespace

Result<std::shared_ptr<Lenders>> Lenders::open(const NodeSeams& seams, std::shared_ptr<os::Files> files,
                                               std::shared_ptr<os::Clock> clock, std::shared_ptr<device::Device> device,
                                               std::shared_ptr<device::PeerFabric> fabric, BorrowOptions options) {
  const auto process = os::this_process(*files);
  if (!process) return process.error();
  std::shared_ptr<Lenders> lenders(new Lenders(seams, std::move(files), std::move(clock), std::move(device),
                                               std::move(fabric), std::move(options), *process));
  if (!lenders->bell_) return Error{Errc::io_error, "an eventfd cannot be opened"};
  auto thread = base::start_thread([self = lenders.get()] { self->run(); });
  if (!thread) return thread.error();
  lenders->thread_ = std::move(*thread);
  return lenders;
}

Lenders::Lenders(const NodeSeams& seams, std::shared_ptr<os::Files> files, std::shared_ptr<os::Clock> clock,
                 std::shared_ptr<device::Device> device, std::shared_ptr<device::PeerFabric> fabric,
                 BorrowOptions options, const os::ProcessId& process)
    : seams_(seams),
      files_(std::move(files)),
      clock_(std::move(clock)),
      device_(std::move(device)),
      fabric_(std::move(fabric)),
      options_(std::move(options)),
      process_(process),
      bell_([] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }) {}

Lenders::~Lenders() { stop(); }

void Lenders::stop() {
  if (!thread_.joinable()) return;
  {
    const Lock lock(mutex_);
    stopping_ = true;
  }
  ring();
  thread_.join();
}

void Lenders::borrow(LeaseNews news) {
  const Lock lock(mutex_);
  news_ = std::move(news);
  const bool takes = static_cast<bool>(news_);
  submit(planner::lease_event::Borrow{kSelf, takes ? options_.bytes : 0});
  for (LenderPeer& peer : peers_) ask(peer);
  if (!takes) {
    std::vector<std::uint32_t> idle;
    for (const auto& [lease, taken] : taken_)
      if (!taken.mapped) idle.push_back(lease);
    for (const std::uint32_t lease : idle) give_back(lease);
  }
  ring();
}

std::uint64_t Lenders::lease_bytes(std::uint32_t lease) const {
  const Lock lock(mutex_);
  const auto found = ledger_.leases().find(lease);
  return found == ledger_.leases().end() ? 0 : found->second.bytes;
}

Lenders::Terms Lenders::terms(std::uint32_t lease) const {
  const Lock lock(mutex_);
  const auto taken = taken_.find(lease);
  if (taken == taken_.end()) return {};
  const auto of = std::ranges::find(peers_, taken->second.lender, &LenderPeer::party);
  return {taken->second.lender, of == peers_.end() ? planner::kWholeLink : of->link, taken->second.owner};
}

Result<std::shared_ptr<std::byte>> Lenders::use_lease(std::uint32_t lease) {
  os::OwnDescriptor descriptor;
  std::uint64_t bytes = 0;
  bool probed = false;
  {
    const Lock lock(mutex_);
    const auto found = taken_.find(lease);
    if (found == taken_.end()) return Error{Errc::closed, "the lease was returned"};
    found->second.mapped = true;
    descriptor = std::move(found->second.descriptor);
    bytes = ledger_.leases().at(lease).bytes;
    if (const LenderPeer* const peer = peer_of(found->second.lender)) probed = peer->probed;
  }
  // All of this takes a while on a GPU.
  auto mapped = fabric_->map(descriptor.fd(), bytes);
  Result<void> right = mapped ? Result<void>() : mapped.error();
  if (right && !probed) {
    const device::PeerView view{*device_, mapped->get()};
    right = device::probe(view, view, kProbed);
    if (!right) mapped->reset();
  }
  if (!right) {
    unmapped(lease);
    return right.error();
  }
  auto owner = fabric_->owner(mapped->get(), bytes);
  const Lock lock(mutex_);
  Taken& taken = taken_.at(lease);
  if (LenderPeer* const peer = peer_of(taken.lender)) peer->probed = true;
  taken.owner = std::move(owner);
  // The lender hears of it once it is unmapped.
  std::byte* const begin = mapped->get();
  const auto unmap = [self = shared_from_this(), lease, memory = std::move(*mapped)](std::byte*) mutable {
    memory.reset();
    self->unmapped(lease);
  };
  return std::shared_ptr<std::byte>(begin, unmap);
}

void Lenders::unmapped(std::uint32_t lease) {
  const Lock lock(mutex_);
  taken_.at(lease).mapped = false;
  if (!news_) give_back(lease);  // there is no thread that does it later
}

void Lenders::end_lease(std::uint32_t lease, bool usable) {
  const Lock lock(mutex_);
  const auto found = taken_.find(lease);
  if (found == taken_.end()) return;  // it went when it was unmapped
  if (found->second.mapped) throw std::logic_error("a lease was returned that is still mapped");
  give_back(lease, usable);
}

std::vector<Lenders::Lease> Lenders::leases() const {
  const Lock lock(mutex_);
  std::vector<Lease> all;
  for (const planner::Lease& lease : ledger_.leases() | std::views::values) {
    const auto of = std::ranges::find(peers_, lease.lender, &LenderPeer::party);
    all.push_back({of == peers_.end() ? 0 : of->name.process.pid, lease.bytes, lease.state});
  }
  return all;
}

// --- its thread ------------------------------------------------------------------------------------------------------

void Lenders::ring() const {
  const std::uint64_t one = 1;
  static_cast<void>(!::write(bell_.fd(), &one, sizeof one));
}

void Lenders::run() {
  std::int64_t looked_at = INT64_MIN / 2;
  for (;;) {
    std::vector<os::Waiting> all{{bell_.fd()}};
    News news;
    LeaseNews tell;
    {
      const Lock lock(mutex_);
      if (stopping_) return;
      if (news_ && clock_->now() - looked_at >= std::chrono::nanoseconds(kFind).count()) {
        find();
        looked_at = clock_->now();
      }
      for (LenderPeer& peer : peers_) {
        flush(peer);
        hear(peer);
        if (peer.connection) all.push_back({peer.connection->fd(), !peer.outgoing.empty()});
      }
      forget_those_gone();
      submit(planner::lease_event::Tick{});
      news = std::exchange(to_tell_, {});
      tell = news_;
    }
    for (const auto& [lease, lent] : news)
      if (tell) tell(lease, lent);
    if (!news.empty()) continue;
    if (!seams_.sockets->wait(all, kFind)) std::this_thread::sleep_for(kPause);  // and looks all the same
    std::uint64_t rung = 0;
    static_cast<void>(!::read(bell_.fd(), &rung, sizeof rung));
  }
}

void Lenders::find() {
  const auto names = find_lenders(*seams_.memory, *files_);
  if (!names) return;  // no directory: no lender
  for (const LenderName& name : *names) {
    const bool own = name.process == process_ && name.number == options_.number;
    const bool known = std::ranges::find(met_, name) != met_.end();
    if (!own && !known && name.group == options_.group) meet(name);
  }
}

// Says who this process is, and what it could take. One that cannot be met now is tried again.
void Lenders::meet(const LenderName& name) {
  auto connection = seams_.sockets->connect(name.socket());
  if (!connection || !*connection) return;
  auto lifeline = Lifeline::make();
  if (!lifeline) return;
  const auto sent =
      (*connection)->send(message::encode(message::Lifeline{kPoolVersion, process_}), lifeline->second.fd());
  if (!sent || !*sent) return;
  met_.push_back(name);
  LenderPeer& peer = peers_.emplace_back();
  peer.party = ++last_party_;
  peer.name = name;
  peer.connection = std::move(*connection);
  peer.lifeline = std::move(lifeline->first);
  ask(peer);
}

// As much as it lends to this process already, and what this one may have beyond all that it has.
void Lenders::ask(LenderPeer& peer) {
  std::uint64_t bytes = news_ ? options_.bytes : 0;
  if (news_ && bytes != UINT64_MAX) {
    bytes += ledger_.lent_by(peer.party);
    bytes -= std::min(bytes, ledger_.borrowed_by(kSelf));
  }
  if (peer.asked == bytes) return;
  peer.asked = bytes;
  const std::uint64_t piece = bytes == UINT64_MAX ? bytes : piece_of(options_.bytes);
  send(peer, message::Borrow{bytes, piece});
}

void Lenders::hear(LenderPeer& peer) {
  std::array<std::byte, os::kMaxMessage> buffer;
  while (peer.connection) {
    auto received = peer.connection->receive(buffer);
    if (received && received->kind == os::Received::Kind::nothing) return;
    if (!received || received->kind == os::Received::Kind::closed) return lost(peer);
    const auto message = message::parse({buffer.data(), received->bytes});
    if (!message) return lost(peer);
    on(peer, *message, std::move(received->descriptor));
  }
}

void Lenders::on(LenderPeer& peer, const message::Any& message, os::OwnDescriptor descriptor) {
  if (const auto* lease = std::get_if<message::Granted>(&message)) return granted(peer, *lease, std::move(descriptor));
  if (const auto* share = std::get_if<message::Share>(&message)) return limited(peer, share->link);
  if (const auto* recall = std::get_if<message::Recall>(&message)) {
    for (const auto& [lease, taken] : taken_) {
      if (taken.lender != peer.party || taken.lease != recall->lease) continue;
      submit(planner::lease_event::Recall{lease});
      return;
    }
  }
}

// Into its own ledger, which grants it to this process unless that has as much as it wants. There a lender offers what
// it has lent, and no more: nothing is granted but what came.
void Lenders::granted(LenderPeer& peer, const message::Granted& granted, os::OwnDescriptor descriptor) {
  if (descriptor && granted.bytes >= planner::kSmallestLease && granted.bytes < UINT64_MAX / 2) {
    const planner::Bytes lent = ledger_.lent_by(peer.party);
    const planner::lease_event::Offer offer{
        .lender = peer.party, .bytes = lent + granted.bytes, .piece = granted.bytes};
    for (const planner::LeaseCommand& command : submit(offer)) {
      if (command.kind != planner::LeaseCommand::grant) continue;
      Taken taken{.lender = peer.party, .lease = granted.lease, .descriptor = std::move(descriptor)};
      taken_.insert_or_assign(command.lease.id, std::move(taken));
      to_tell_.emplace_back(command.lease.id, true);
      for (LenderPeer& other : peers_) ask(other);
      return;
    }
    submit(planner::lease_event::Offer{.lender = peer.party, .bytes = lent});
  }
  ask(peer);
  send(peer, message::Return{granted.lease, false});
}

// Once for all that this lender has lent.
void Lenders::limited(LenderPeer& peer, std::uint32_t link) {
  peer.link = link;
  const auto one = std::ranges::find_if(taken_, [&](const auto& lease) { return lease.second.lender == peer.party; });
  if (one != taken_.end()) to_tell_.emplace_back(one->first, true);
}

// What it lent is recalled, and readable until it is unmapped.
void Lenders::lost(LenderPeer& peer) {
  peer.connection.reset();
  peer.outgoing.clear();
  std::erase(met_, peer.name);  // another store of that process may have it next
  const planner::Time deadline = clock_->now() + options_.return_within.count();
  submit(planner::lease_event::LenderDied{peer.party, deadline});
}

void Lenders::give_back(std::uint32_t lease, bool usable) {
  const auto found = taken_.find(lease);
  const Taken taken = std::move(found->second);
  taken_.erase(found);
  const planner::Time now = clock_->now();
  const planner::Bytes others = ledger_.lent_by(taken.lender) - ledger_.leases().at(lease).bytes;
  ledger_.on(now, planner::lease_event::Recall{lease});
  ledger_.on(now, planner::lease_event::Offer{.lender = taken.lender, .bytes = others});
  ledger_.on(now, planner::lease_event::Return{lease, !usable});
  if (LenderPeer* const peer = peer_of(taken.lender)) {
    send(*peer, message::Return{taken.lease, !usable});
    if (!stopping_) ask(*peer);
  }
}

std::vector<planner::LeaseCommand> Lenders::submit(const planner::lease_event::Any& event) {
  auto commands = ledger_.on(clock_->now(), event);
  for (const planner::LeaseCommand& command : commands) {
    if (command.kind == planner::LeaseCommand::recall) to_tell_.emplace_back(command.lease.id, false);
  }
  return commands;
}

Lenders::LenderPeer* Lenders::peer_of(planner::PartyId party) {
  const auto found = std::ranges::find(peers_, party, &LenderPeer::party);
  return found == peers_.end() ? nullptr : &*found;
}

void Lenders::send(LenderPeer& peer, const message::Any& message) {
  if (!peer.connection) return;
  peer.outgoing.push_back(message::encode(message));
  flush(peer);
}

void Lenders::flush(LenderPeer& peer) {
  while (peer.connection && !peer.outgoing.empty()) {
    const auto sent = peer.connection->send(peer.outgoing.front());
    if (sent && !*sent) return;
    peer.outgoing.pop_front();  // of a closed connection too: hear() meets that
  }
}

// Once nothing of theirs is here.
void Lenders::forget_those_gone() {
  std::erase_if(peers_, [&](const LenderPeer& peer) { return !peer.connection && ledger_.lent_by(peer.party) == 0; });
}

}  // namespace ebb::share
