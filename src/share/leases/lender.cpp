#include "share/leases/lender.hpp"

#include <algorithm>
#include <array>
#include <ranges>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/start_thread.hpp"
#include "share/leases/lifeline.hpp"

namespace ebb::share {

namespace message = message;
using std::chrono::milliseconds;

namespace {

constexpr milliseconds kLook{1000};                          // when no descriptor tells anything
constexpr std::chrono::nanoseconds kAsk = milliseconds{50};  // whether a call that waits is to go on
constexpr std::uint64_t kUnit = planner::kSmallestLease;

}  // namespace

std::uint64_t piece_of(std::uint64_t bytes) {
  return std::max<std::uint64_t>(bytes / (8 * kUnit) + (bytes % (8 * kUnit) != 0), 1) * kUnit;
}

Result<std::unique_ptr<Lender>> Lender::open(const NodeSeams& seams, os::Files& files, os::Clock& clock,
                                             device::PeerFabric& fabric, LenderOptions options) {
  const auto process = os::this_process(files);
  if (!process) return process.error();
  remove_dead_lenders(seams, files);
  auto file = LenderFile::create(seams.memory, {options.group, *process, options.number});
  if (!file) return file.error();
  auto listener = seams.sockets->listen(file->name().socket());
  if (!listener) return listener.error();
  std::unique_ptr<Lender> lender(
      new Lender(seams, clock, fabric, std::move(options), std::move(*file), std::move(*listener)));
  if (!lender->bell_) return Error{Errc::io_error, "an eventfd cannot be opened"};
  auto thread = base::start_thread([self = lender.get()] { self->run(); });
  if (!thread) return thread.error();
  lender->thread_ = std::move(*thread);
  return lender;
}

Lender::Lender(const NodeSeams& seams, os::Clock& clock, device::PeerFabric& fabric, LenderOptions options,
               LenderFile file, std::unique_ptr<os::LocalListener> listener)
    : seams_(seams),
      clock_(clock),
      fabric_(fabric),
      options_(std::move(options)),
      bell_([] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }),
      listener_(std::move(listener)),
      file_(std::move(file)) {
  const Lock lock(mutex_);
  offered_ = options_.bytes;
  submit(what_is_offered());
}

planner::lease_event::Offer Lender::what_is_offered() const {
  return {.lender = kSelf, .bytes = offered_, .piece = piece_of(offered_), .link = options_.link};
}

Lender::~Lender() {
  if (!thread_.joinable()) return;
  static_cast<void>(static_cast<bool>(offer(0, options_.recall_within)));
  {
    const Lock lock(mutex_);
    stopping_ = true;
  }
  ring();
  thread_.join();
}

Result<void> Lender::offer(std::uint64_t bytes, std::chrono::nanoseconds within, const Interrupt& interrupted) {
  std::unique_lock lock(mutex_);
  const std::int64_t until = clock_.now() + std::clamp<planner::Time>(within.count(), 0, planner::kNever / 2);
  offered_ = bytes;
  planner::lease_event::Offer offer = what_is_offered();
  offer.deadline = until;
  submit(offer);
  ring();
  returned_.notify_all();
  bool stop = false;
  while (ledger_.lent_by(kSelf) > std::max(bytes, offered_)) {
    const std::int64_t left = until - clock_.now();
    if (left <= 0 || stop) return Error{Errc::timed_out, what_is_missing()};
    const std::chrono::nanoseconds limit(left);
    if (!interrupted) {
      returned_.wait_for(lock, limit);
    } else if (returned_.wait_for(lock, std::min(limit, kAsk)) == std::cv_status::timeout) {
      lock.unlock();
      stop = interrupted();
      lock.lock();
    }
  }
  return {};
}

LenderState Lender::state() const {
  const Lock lock(mutex_);
  return state_now();
}

LenderState Lender::state_now() const {
  LenderState state{options_.gpu, offered_, options_.link};
  for (const planner::Lease& lease : ledger_.leases() | std::views::values) {
    state.leases.push_back({lease.id, pid_of(lease.borrower), lease.bytes, lease.state});
  }
  return state;
}

std::string Lender::what_is_missing() const {
  std::map<pid_t, std::uint64_t> kept;
  for (const planner::Lease& lease : ledger_.leases() | std::views::values) {
    if (lease.state != planner::LeaseState::lent) kept[pid_of(lease.borrower)] += lease.bytes;
  }
  std::string text;
  for (const auto& [pid, bytes] : kept) {
    text += (text.empty() ? "process " : ", process ") + std::to_string(pid) + " " + std::to_string(bytes) + " bytes";
  }
  return "memory that was lent has not been returned in time: " + text + "; it is not free until it is";
}

// --- its thread ------------------------------------------------------------------------------------------------------

void Lender::ring() const {
  const std::uint64_t one = 1;
  static_cast<void>(!::write(bell_.fd(), &one, sizeof one));
}

void Lender::run() {
  for (;;) {
    std::vector<os::Waiting> all;
    milliseconds limit{};
    {
      const Lock lock(mutex_);
      if (stopping_) return;
      all = awaited();
      limit = until_deadline();
    }
    if (!seams_.sockets->wait(all, limit))
      std::this_thread::sleep_for(std::min(limit, kPause));  // and looks all the same
    std::uint64_t rung = 0;
    static_cast<void>(!::read(bell_.fd(), &rung, sizeof rung));
    bool pause = false;
    {
      const Lock lock(mutex_);
      look_around();
      pause = std::exchange(no_descriptors_, false);
    }
    if (pause) std::this_thread::sleep_for(kPause);
  }
}

std::vector<os::Waiting> Lender::awaited() const {
  std::vector<os::Waiting> all{{bell_.fd()}, {listener_->fd()}};
  for (const BorrowerPeer& peer : peers_) {
    if (peer.connection) all.push_back({peer.connection->fd(), !peer.outgoing.empty()});
    if (peer.lifeline) all.push_back({.fd = peer.lifeline.fd(), .to_receive = false});
  }
  return all;
}

milliseconds Lender::until_deadline() const {
  const planner::Time next = ledger_.next_deadline();
  if (next == planner::kNever) return kLook;
  const auto left = std::chrono::nanoseconds(std::max<std::int64_t>(next - clock_.now(), 0));
  return std::min(kLook, std::chrono::ceil<milliseconds>(left));
}

void Lender::look_around() {
  accept();
  for (BorrowerPeer& peer : peers_) {
    flush(peer);
    receive(peer);
    if (!peer.lifeline || !has_ended(peer.lifeline)) continue;
    receive(peer);  // what it said last
    disconnect(peer);
    peer.lifeline = {};
    submit(planner::lease_event::BorrowerEnded{peer.party});
  }
  submit(planner::lease_event::Tick{});
  std::erase_if(peers_, [](const BorrowerPeer& peer) { return !peer.connection && !peer.lifeline; });
}

void Lender::accept() {
  for (;;) {
    auto connection = listener_->accept();
    no_descriptors_ |= !connection;
    if (!connection || !*connection) return;
    BorrowerPeer& peer = peers_.emplace_back();
    peer.party = ++last_party_;
    peer.connection = std::move(*connection);
  }
}

void Lender::receive(BorrowerPeer& peer) {
  std::array<std::byte, os::kMaxMessage> buffer;
  for (std::size_t n = 0; n < message::kMostInARow && peer.connection; ++n) {
    auto received = peer.connection->receive(buffer);
    if (received && received->kind == os::Received::Kind::nothing) return;
    if (!received || received->kind == os::Received::Kind::closed) return disconnect(peer);
    const auto message = message::parse({buffer.data(), received->bytes});
    if (!message) return disconnect(peer);
    on(peer, *message, std::move(received->descriptor));
  }
}

// What it has stays its own until its pipe ends.
void Lender::disconnect(BorrowerPeer& peer) {
  if (!peer.connection) return;
  peer.connection.reset();
  peer.outgoing.clear();
  if (peer.lifeline) submit(planner::lease_event::BorrowerDied{peer.party});
}

void Lender::on(BorrowerPeer& peer, const message::Any& message, os::OwnDescriptor descriptor) {
  if (const auto* hello = std::get_if<message::Lifeline>(&message)) {
    const bool right =
        hello->version == kPoolVersion && hello->process.pid == peer.connection->peer() && descriptor && !peer.lifeline;
    if (!right) return disconnect(peer);
    peer.process = hello->process;
    peer.lifeline = std::move(descriptor);
    return;
  }
  if (!peer.lifeline) return disconnect(peer);
  if (const auto* request = std::get_if<message::Borrow>(&message)) {
    submit(planner::lease_event::Borrow{peer.party, request->bytes, std::max(request->piece, planner::kSmallestLease)});
  } else if (const auto* returned = std::get_if<message::Return>(&message)) {
    const auto found = ledger_.leases().find(returned->lease);
    if (found == ledger_.leases().end() || found->second.borrower != peer.party) return;
    submit(planner::lease_event::Return{returned->lease, returned->unusable});
  }
}

void Lender::submit(const planner::lease_event::Any& event) {
  const std::vector<planner::LeaseCommand> commands = ledger_.on(clock_.now(), event);
  tell_shares();
  for (const planner::LeaseCommand& command : commands) carry_out(command);
  file_.write(state_now());
}

void Lender::carry_out(const planner::LeaseCommand& command) {
  const planner::Lease& lease = command.lease;
  switch (command.kind) {
    case planner::LeaseCommand::grant: return grant(lease);
    case planner::LeaseCommand::recall:
      if (lent_.contains(lease.id)) tell(lease.borrower, message::Recall{lease.id});
      return;
    case planner::LeaseCommand::overdue:
      return options_.warn("process " + std::to_string(pid_of(lease.borrower)) + " has not returned " +
                           std::to_string(lease.bytes) + " bytes of memory that it was lent");
    case planner::LeaseCommand::free: lent_.erase(lease.id); returned_.notify_all();
  }
}

// To those who have leases, what they may use of the bandwidth; nothing, if all of it is theirs.
void Lender::tell_shares() {
  if (options_.link >= planner::kWholeLink) return;
  for (BorrowerPeer& peer : peers_) {
    const std::uint32_t link = ledger_.link_of(kSelf, peer.party);
    if (link == 0 || link == std::exchange(peer.link, link)) continue;
    tell(peer.party, message::Share{link});
  }
}

// Where there is less memory than was offered, no more is offered than there is: nothing is granted in its place.
void Lender::grant(const planner::Lease& lease) {
  auto made = fabric_.lend(lease.bytes);
  if (!made) {
    offered_ = ledger_.lent_by(kSelf) - lease.bytes;
    submit(planner::lease_event::Recall{lease.id});
    submit(what_is_offered());
    submit(planner::lease_event::Return{lease.id});
    return options_.warn("no more than " + std::to_string(offered_) + " bytes can be lent: " + made.error().message);
  }
  lent_[lease.id] = std::move(*made);
  tell(lease.borrower, message::Granted{lease.id, lease.bytes}, lease.id);
}

void Lender::tell(planner::PartyId borrower, const message::Any& message, std::optional<planner::LeaseId> lease) {
  for (BorrowerPeer& peer : peers_) {
    if (peer.party != borrower || !peer.connection) continue;
    peer.outgoing.push_back({message::encode(message), lease});
    flush(peer);
  }
}

void Lender::flush(BorrowerPeer& peer) {
  while (peer.connection && !peer.outgoing.empty()) {
    const Outgoing& next = peer.outgoing.front();
    os::OwnDescriptor memory;
    const auto lent = next.lease ? lent_.find(*next.lease) : lent_.end();
    if (lent != lent_.end()) {
      auto copied = lent->second->descriptor();
      no_descriptors_ |= !copied;
      if (!copied) return;
      memory = std::move(*copied);
    }
    const bool told = !next.lease || memory;  // else it was returned meanwhile
    const auto sent = told ? peer.connection->send(next.message, memory.fd()) : Result<bool>(true);
    if (sent && !*sent) return;
    peer.outgoing.pop_front();  // of a closed connection too: receive() meets that
  }
}

pid_t Lender::pid_of(planner::PartyId borrower) const {
  const auto found = std::ranges::find(peers_, borrower, &BorrowerPeer::party);
  return found == peers_.end() ? 0 : found->process.pid;
}

}  // namespace ebb::share
