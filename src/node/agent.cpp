#include "node/agent.hpp"

#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <numeric>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

namespace ebb::node {
namespace {

using std::chrono::milliseconds;

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kFirstProcess = 20 * kSecond;  // that an agent without processes waits for the first one
constexpr std::int64_t kDying = 5 * kSecond;          // that the lock of a killed agent may outlast its connections
constexpr milliseconds kNoOne{20}, kLook{200};        // between looks for what no descriptor tells
constexpr std::size_t kMostMessages = 64;             // of one process in a row
constexpr std::size_t kMostAnswers = 256;             // that wait for one process, which is not listened to meanwhile

// A file in memory that no process can shorten: no access to it ends in a signal.
bool is_stage(int fd, std::uint64_t bytes) {
  struct stat found{};
  const int seals = ::fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && ::fstat(fd, &found) == 0 && bytes > 0 &&
         bytes <= static_cast<std::uint64_t>(found.st_size);
}

// A pool's file may be of anyone's making that is this user.
Result<void> check_store(const PoolStore& store) {
  const bool blocks = store.block_bytes != 0 && store.block_bytes % platform::kBlock == 0 &&
                      store.block_bytes <= ObjectWriter::kPutBytes;
  if (blocks && std::filesystem::path(store.directory).is_absolute()) return {};
  return Error{Errc::damaged, "the pool's header names a store that no process opens: directory \"" + store.directory +
                                  "\", blocks of " + std::to_string(store.block_bytes) + " bytes"};
}

}  // namespace

storage::PersistentOptions store_options(const PoolStore& store) {
  storage::PersistentOptions options;
  options.directory = store.directory;
  options.capacity = store.capacity;
  options.block_bytes = store.block_bytes;
  options.synced = store.synced;
  options.direct = store.direct;
  options.engine.kind = static_cast<transfer::FileEngineOptions::Kind>(std::min<std::uint8_t>(store.engine, 2));
  return options;
}

PoolStore pool_store(const storage::PersistentOptions& options) {
  std::error_code ignored;
  return {std::filesystem::absolute(options.directory, ignored).lexically_normal().string(),
          options.capacity,
          options.block_bytes,
          options.synced,
          options.direct,
          static_cast<std::uint8_t>(options.engine.kind)};
}

Agent::Agent(const NodeSeams& seams, platform::Files& files, platform::Clock& clock, PoolFile pool,
             std::unique_ptr<platform::LocalListener> listener, bool program)
    : seams_(seams),
      files_(files),
      clock_(clock),
      pool_(std::move(pool)),
      listener_(std::move(listener)),
      program_(program),
      queue_("node", seams.queue_directories),
      bell_([] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }) {}

// The connections close last: whoever sees that finds the store unlocked.
Agent::~Agent() {
  writer_.reset();
  peers_.clear();
}

void Agent::stop() {
  stop_ = true;
  const std::uint64_t one = 1;
  static_cast<void>(!::write(bell_.fd(), &one, sizeof one));
}

Result<void> Agent::open() {
  if (auto possible = check_store(pool_.header().store); !possible) return possible;
  std::vector<std::uint32_t> all(pool_.shape().slabs());
  std::iota(all.begin(), all.end(), 0u);
  auto mapped = pool_.map(all);
  if (!mapped) return mapped.error();
  slabs_ = std::move(*mapped);
  if (!bell_) return Error{Errc::io_error, "an eventfd cannot be opened"};
  writer_.emplace(slabs_.data(), pool_.shape(), [this] {
    const std::uint64_t one = 1;
    static_cast<void>(!::write(bell_.fd(), &one, sizeof one));
  });
  const std::int64_t until = clock_.now() + (number_ > 1 ? kDying : 0);
  for (;;) {
    auto opened = writer_->open(files_, clock_, store_options(pool_.header().store));
    if (opened || opened.error().code != Errc::in_use || clock_.now() >= until) return opened;
    std::this_thread::sleep_for(kNoOne);
  }
}

Result<void> Agent::run() {
  number_ = pool_.tables().take_over();
  idle_since_ = clock_.now();
  if (auto opened = open(); !opened) refused_ = opened.error();
  if (refused_ && !listener_) return *refused_;
  adopt_members();
  for (bool last = false;;) {
    look_for_the_dead(last);
    for (Peer& peer : peers_) {
      if (peer.hello) answer(peer);
      if (peer.look && !refused_) take_entries(peer);
    }
    if (!refused_) {
      for (const ObjectWriter::Ended& ended : writer_->run()) {
        const auto of = std::ranges::find_if(
            peers_, [&](const Peer& peer) { return peer.process && peer.process->member == ended.member; });
        if (of == peers_.end()) continue;
        for (const std::uint64_t entry : ended.entries) {  // before the process may use the memory again
          of->list->list.finish(entry);
          of->taken.erase(entry);
        }
        if (ended.piece) {
          send(*of, message::Moved{ended.object, *ended.piece, ended.error});
          continue;
        }
        send(*of, message::Finished{ended.object, ended.error});
      }
      finish_ended();
    }
    if (may_end()) {
      remove_pool();
      break;
    }
    if (last && !dead_have_left_something()) break;
    last = stop_;  // what was said before that is heard
    if (!wait(last && !dead_have_left_something() ? milliseconds{0} : peers_.empty() ? kNoOne : kLook)) break;
  }
  if (writer_) writer_->stop();
  return refused_ ? Result<void>(*refused_) : Result<void>();
}

// Of an agent before this one. Those that are alive come back by themselves.
void Agent::adopt_members() {
  const PoolShape& shape = pool_.shape();
  for (std::uint32_t slot = 0; slot < shape.processes; ++slot) {
    const auto process = pool_.tables().process(slot);
    if (!process) continue;
    Peer peer;
    peer.process = process;
    peer.count = static_cast<std::uint32_t>(process->share / shape.slab_bytes());
    bool first = true;
    for (std::uint32_t slab = 0; slab < shape.slabs(); ++slab) {
      const auto found = pool_.tables().slab(slab);
      if (!found || found->state == Slab::State::free || found->owner != process->member) continue;
      if (std::exchange(first, false)) peer.first = slab;
      peer.claimed = slab + 1 - peer.first;
    }
    auto list = pool_.list(process->member);
    if (!list) continue;
    peer.list.emplace(std::move(*list));
    peer.look = true;
    peers_.push_back(std::move(peer));
    served_ = true;
  }
}

// A process that has closed its connection may live on and use its memory; one without a pidfd is looked up.
void Agent::look_for_the_dead(bool all) {
  const std::int64_t now = clock_.now();
  const bool look_up = all || now - looked_at_ > kSecond / 5;
  if (look_up) looked_at_ = now;
  for (Peer& peer : peers_) {
    if (peer.ended || !peer.process) continue;
    bool gone = false;
    if (peer.pidfd) {
      const auto ended = seams_.sockets->gone(peer.pidfd);
      gone = ended && *ended;
    } else if (look_up) {
      gone = !platform::is_running(files_, peer.process->process);
    }
    if (!gone) continue;
    while (peer.connection && receive(peer)) {  // what it said last
    }
    peer.connection.reset();
    peer.ended = peer.look = true;
  }
}

void Agent::take_entries(Peer& peer) {
  peer.look = false;
  if (!peer.list) return;
  std::vector<HandedOver> fresh = peer.list->list.unfinished();
  std::erase_if(fresh, [&](const HandedOver& entry) { return peer.taken.contains(entry.sequence); });
  for (const WholeObject& object : whole_objects(fresh)) {
    for (const HandedOver& part : object.parts) peer.taken.insert(part.sequence);
    writer_->add(peer.process->member, object);
  }
}

void Agent::finish_ended() {
  for (Peer& peer : peers_) {
    if (peer.ended && peer.process) writer_->end_pieces(peer.process->member);
    if (!peer.ended || !peer.process || peer.look || !writer_->idle(peer.process->member)) continue;
    const Member member = peer.process->member;
    for (std::uint32_t slab = 0; slab < pool_.shape().slabs(); ++slab) pool_.tables().take_back(slab, member);
    peer.list.reset();
    static_cast<void>(pool_.dismiss(member));
    writer_->forget(member);
    peer.process.reset();
    peer.connection.reset();
  }
  std::erase_if(peers_, [](const Peer& peer) { return !peer.process && !peer.connection; });
}

bool Agent::dead_have_left_something() const {
  if (refused_) return false;  // not for this agent
  return std::ranges::any_of(peers_, [](const Peer& peer) { return peer.ended && peer.process; });
}

// --- connections -----------------------------------------------------------------------------------------------------

bool Agent::wait(milliseconds limit) {
  std::vector<platform::Waiting> all{{bell_.fd()}};
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
    for (std::size_t n = 0; n < kMostMessages && peer.connection && peer.outgoing.size() < kMostAnswers; ++n) {
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
  std::array<std::byte, platform::kMaxMessage> buffer;
  auto received = peer.connection->receive(buffer);
  if (!received || received->kind == platform::Received::Kind::closed) {
    peer.connection.reset();
    peer.outgoing.clear();
    peer.look = peer.process.has_value();
    return false;
  }
  if (received->kind == platform::Received::Kind::nothing) return false;
  const auto message = message::parse({buffer.data(), received->bytes});
  if (!message) {
    send(peer, message::Refused{message.error()});
    peer.connection.reset();
    return false;
  }
  on(peer, *message, std::move(received->descriptor));
  return true;
}

void Agent::on(Peer& peer, const message::Any& message, platform::OwnDescriptor descriptor) {
  if (const auto* hello = std::get_if<message::Hello>(&message)) {
    if (peer.process) return;
    const auto process = platform::LocalSockets::process_of(descriptor);
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
    const auto lent = lend(peer, claim->slabs);
    send(peer, message::Claimed{peer.claimed, lent ? Error{} : lent.error()});
  } else if (std::holds_alternative<message::Look>(message)) {
    peer.look = true;
  } else if (const auto* drop = std::get_if<message::Drop>(&message)) {
    if (peer.look) take_entries(peer);
    writer_->drop(member, drop->object, drop->abandon, drop->history, drop->version);
    send(peer, message::Dropped{drop->number});
  } else if (const auto* stage = std::get_if<message::Stage>(&message)) {
    if (!descriptor || !is_stage(descriptor.fd(), stage->bytes)) return;
    platform::DescriptorSharedFile file(std::move(descriptor), "the stage of a process");
    auto mapped = file.map(std::array{platform::FileRange{0, stage->bytes}});
    if (mapped && peer.stage.size() == 0) peer.stage = std::move(*mapped);
  } else if (const auto* piece = std::get_if<message::Piece>(&message)) {
    const bool inside = piece->at % platform::kBlock == 0 && piece->at <= peer.stage.size() &&
                        platform::round_up(piece->bytes) <= peer.stage.size() - piece->at;
    if (inside) return writer_->add_piece(member, *piece, peer.stage.data() + piece->at);
    send(peer, message::Moved{piece->object, piece->offset, {Errc::damaged, "a piece is not in the process's stage"}});
  } else if (std::holds_alternative<message::Commit>(message)) {
    writer_->commit(member);
  } else if (std::holds_alternative<message::Leave>(message)) {
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

// --- admission -------------------------------------------------------------------------------------------------------

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
    return;
  }
  if (dead_have_left_something()) return;  // later
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
  const auto first = free_run(std::max(slabs, 1u));
  if (!first || slabs == 0) {
    return Error{Errc::no_space, "the pool of " + std::to_string(shape.budget) + " bytes has a share for each of " +
                                     std::to_string(hello.ranks) + " processes, and all are taken"};
  }
  const auto member = pool_.admit(hello.process, std::uint64_t{slabs} * shape.slab_bytes());
  if (!member) return member.error();
  auto list = pool_.list(*member);
  if (!list) {
    static_cast<void>(pool_.dismiss(*member));
    return list.error();
  }
  peer.list.emplace(std::move(*list));
  peer.process = PoolProcess{*member, hello.process, std::uint64_t{slabs} * shape.slab_bytes()};
  peer.rank = hello.rank;
  peer.first = *first;
  peer.count = slabs;
  if (auto lent = lend(peer, 1); !lent) {  // for descriptions
    peer.ended = true;
    return lent.error();
  }
  return message::Welcome{*member, peer.first, peer.count, number_, program_};
}

// The first slab of so many that are in no process's run.
std::optional<std::uint32_t> Agent::free_run(std::uint32_t slabs) const {
  std::uint32_t first = 0;
  while (first + slabs <= pool_.shape().slabs()) {
    const auto taken = std::ranges::find_if(peers_, [&](const Peer& peer) {
      return peer.process && peer.first < first + slabs && first < peer.first + peer.count;
    });
    if (taken == peers_.end()) return first;
    first = taken->first + taken->count;
  }
  return {};
}

Result<void> Agent::lend(Peer& peer, std::uint32_t slabs) {
  slabs = std::min(slabs, peer.count);
  while (peer.claimed < slabs) {
    const std::uint32_t slab = peer.first + peer.claimed;
    if (auto done = pool_.allocate(slab); !done) return done;
    const auto now = pool_.tables().slab(slab);
    const bool owned = now && now->state == Slab::State::lent && now->owner == peer.process->member;
    if (!owned && !pool_.tables().lend(slab, peer.process->member)) {
      return Error{Errc::damaged, "slab " + std::to_string(slab) + " of the pool is not free, and has no owner"};
    }
    ++peer.claimed;
  }
  return {};
}

// --- the end ---------------------------------------------------------------------------------------------------------

bool Agent::may_end() {
  // Without a store there is nothing to do for those that have been told so: their lists are an agent's that has one.
  const bool awaited = std::ranges::any_of(peers_, [this](const Peer& peer) { return !refused_ || peer.connection; });
  if (awaited || (writer_ && !refused_ && !writer_->idle())) {
    idle_since_ = clock_.now();
    return false;
  }
  if (!listener_) return true;
  if (!served_ && clock_.now() - idle_since_ < kFirstProcess) return false;
  if (auto entered = queue_.enter(); !entered) return true;  // no process can come either
  if (!queue_.poll()) {
    queue_.leave();
    return false;
  }
  const std::size_t known = peers_.size();
  accept();
  if (peers_.size() == known) return true;
  queue_.leave();
  return false;
}

void Agent::remove_pool() {
  listener_.reset();
  if (writer_) writer_->stop();
  for (std::uint32_t slot = 0; slot < pool_.shape().processes; ++slot) {
    if (pool_.tables().process(slot)) return;  // its list is still to be finished, by an agent that can
  }
  static_cast<void>(seams_.memory->remove(pool_name(pool_.header().job)));
  queue_.leave();
}

}  // namespace ebb::node
