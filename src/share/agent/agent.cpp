#include "share/agent/agent.hpp"

#include <algorithm>
#include <numeric>
#include <sys/eventfd.h>
#include <unistd.h>

#include "os/memory_limits.hpp"

namespace ebb::share {
namespace {

using std::chrono::milliseconds;

constexpr std::int64_t kFirstProcess = 20 * os::kSecond;  // that an agent without processes waits for the first one
constexpr std::int64_t kPiecesLimit =
    5 * os::kSecond;                                 // that a stopped agent waits for the rest of what comes in pieces
constexpr std::int64_t kDying = 5 * os::kSecond;     // that the lock of a killed agent may outlast what else it had
constexpr std::int64_t kMeasure = os::kSecond / 10;  // between looks at the memory that is left
constexpr milliseconds kNoOne{20}, kLook{200};       // between looks for what no descriptor tells

// A pool's file may be of anyone's making that is this user.
Result<void> check_store(const PoolStore& store) {
  if (store.none()) return {};
  const bool blocks =
      store.block_bytes != 0 && store.block_bytes % os::kBlock == 0 && store.block_bytes <= ObjectWriter::kPutBytes;
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
  if (options.directory.empty()) return {};
  std::error_code ignored;
  return {std::filesystem::absolute(options.directory, ignored).lexically_normal().string(),
          options.capacity,
          options.block_bytes,
          options.synced,
          options.direct,
          static_cast<std::uint8_t>(options.engine.kind)};
}

Agent::Agent(const NodeSeams& seams, os::Files& files, os::Clock& clock, PoolFile pool,
             std::unique_ptr<os::LocalListener> listener, bool program)
    : seams_(seams),
      files_(files),
      clock_(clock),
      pool_(std::move(pool)),
      listener_(std::move(listener)),
      serves_(listener_ != nullptr),
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
  writer_.emplace(slabs_.data(), pool_.shape(), clock_, [this] {
    const std::uint64_t one = 1;
    static_cast<void>(!::write(bell_.fd(), &one, sizeof one));
  });
  if (pool_.header().store.none()) return {};
  storage::PersistentOptions options = store_options(pool_.header().store);
  // No process of the job is left that would make room: what it had handed over may go beyond its limit.
  if (!serves_) options.capacity += 2 * pool_.shape().budget;
  const std::int64_t until = clock_.now() + kDying;
  for (;;) {
    auto opened = writer_->open(files_, options);
    if (opened || opened.error().code != Errc::in_use || clock_.now() >= until) return opened;
    std::this_thread::sleep_for(kNoOne);
  }
}

Result<void> Agent::run() {
  if (auto held = pool_.hold(kAgentProcess); !held) return held;
  number_ = pool_.tables().take_over();
  granted_ = number_ << 32;  // no other agent's
  const PoolProgress before = pool_.tables().progress();
  idle_since_ = admitted_at_ = clock_.now();
  look_for_the_pool();
  if (orphaned_) return {};
  if (auto opened = open(); !opened) refused_ = opened.error();
  if (refused_ && !serves_) return *refused_;
  if (!refused_) writer_->go_on_from(before);
  adopt_members();
  bool last = false;
  const auto over = [&] { return last && !dead_have_left_something() && !pieces_are_coming(); };
  for (;;) {
    // Whoever asks for a place may be the next of one that has just died.
    look_for_the_dead(last || std::ranges::any_of(peers_, [](const Peer& peer) { return peer.hello.has_value(); }));
    look_for_the_pool();
    for (Peer& peer : peers_) {
      if (peer.hello) answer(peer);
      if (peer.ended && peer.process && !refused_) writer_->end_member(peer.process->member);
      if (peer.look && !refused_) take_entries(peer);
      answer_drops(peer);
    }
    share_out();
    if (!refused_) {
      look_at_memory();
      const std::vector<ObjectWriter::Ended> all = writer_->run();
      pool_.tables().set_progress(writer_->progress());  // before entries are finished: who drains the pool looks here
      for (const ObjectWriter::Ended& ended : all) {
        // No process hears of it: what the dead left stays in the pool, for another attempt.
        if (!serves_ && ended.delayed) {
          writer_->stop();
          return ended.error;
        }
        const auto of = std::ranges::find_if(
            peers_, [&](const Peer& peer) { return peer.process && peer.process->member == ended.member; });
        if (of == peers_.end()) continue;
        of->produced_at = clock_.now();
        if (ended.delayed) {
          send(*of, message::Delayed{ended.object, ended.error});
          continue;
        }
        for (const std::uint64_t entry : ended.entries) {  // before the process may use the memory again
          of->list->list.finish(entry);
          of->taken.erase(entry);
        }
        if (ended.written) {
          send(*of, message::Written{ended.object, ended.sequence});
          continue;
        }
        if (ended.piece) {
          send(*of, message::Moved{ended.object, *ended.piece, ended.error});
          continue;
        }
        send(*of, message::Finished{ended.object, ended.sequence, ended.error});
      }
      finish_ended();
    }
    if (may_end()) {
      remove_pool();
      break;
    }
    if (over()) break;
    const bool stopping = stop_;
    if (stopping && !last) stopped_at_ = clock_.now();
    last = stopping;  // what was said before that is heard
    const bool soon =
        peers_.empty() || std::ranges::any_of(peers_, [](const Peer& peer) { return !peer.drops.empty(); });
    milliseconds limit = over() ? milliseconds{0} : soon || last ? kNoOne : kLook;
    if (const planner::Time due = refused_ ? planner::kNever : writer_->due(); due != planner::kNever) {
      const auto left = std::chrono::ceil<milliseconds>(std::chrono::nanoseconds(due - clock_.now()));
      limit = std::clamp(left, milliseconds{0}, limit);
    }
    if (!wait(limit)) break;
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
    peer.count = share_ = static_cast<std::uint32_t>(process->share / shape.slab_bytes());
    peer.first = slot * share_;
    if (share_ == 0 || slot >= shape.slabs() / share_) continue;  // nobody's share: the header or the table is damaged
    while (peer.claimed < peer.count) {
      const auto found = pool_.tables().slab(peer.first + peer.claimed);
      if (!found || found->state == SlabState::free || found->owner != process->member) break;
      ++peer.claimed;
    }
    auto list = pool_.list(process->member);
    if (!list) continue;
    peer.list.emplace(std::move(*list));
    peer.look = true;
    peer.produced_at = clock_.now();
    peers_.push_back(std::move(peer));
    served_ = true;
  }
  adopt_leases();
}

// A process that has closed its connection may live on and use its memory; one without a pidfd is looked up.
void Agent::look_for_the_dead(bool all) {
  const std::int64_t now = clock_.now();
  const bool look_up = all || now - looked_at_ > os::kSecond / 5;
  if (look_up) looked_at_ = now;
  for (Peer& peer : peers_) {
    if (peer.ended || !peer.process) continue;
    if ((!peer.pidfd && !look_up) || !is_gone(peer)) continue;
    while (peer.connection && receive(peer)) {  // what it said last
    }
    peer.connection.reset();
    peer.ended = peer.look = true;
  }
}

// Others finish and remove the pool of a job without processes if its agent does not listen yet.
void Agent::look_for_the_pool() {
  orphaned_ = orphaned_ || (serves_ && !pool_.named());
  if (!orphaned_) return;
  listener_.reset();
  for (Peer& peer : peers_)
    if (!peer.process) peer.connection.reset();  // it starts the next one
  std::erase_if(peers_, [](const Peer& peer) { return !peer.process && !peer.connection; });
}

// What goes through the page cache may take of it; the answer is old by one look at most.
void Agent::look_at_memory() {
  if (!pool_.header().store.overflow || share_ == 0 || clock_.now() - measured_at_ < kMeasure) return;
  measured_at_ = clock_.now();
  const auto available = os::available_memory(files_);
  const auto group = os::cgroup_memory(files_);
  const std::uint64_t left = std::min(available ? *available : 0, group ? group->left : UINT64_MAX);
  writer_->allow_overflow(left, os::memory_stalls(files_));
}

bool Agent::is_gone(const Peer& peer) {
  if (!peer.pidfd) return !pool_.may_use(peer.process->process, files_);
  const auto gone = seams_.sockets->gone(peer.pidfd);
  return gone && *gone;
}

void Agent::answer_drops(Peer& peer) {
  if (peer.drops.empty() || !peer.process) return;
  const std::uint64_t done = writer_ ? writer_->drops_done() : 0;
  std::erase_if(peer.drops, [&](UnansweredDrop& drop) {
    if (!drop.drops && drop.object != 0 && writer_ && writer_->has(peer.process->member, drop.object)) return false;
    if (!drop.drops) drop.drops = writer_ ? writer_->drops() : 0;
    if (*drop.drops > done) return false;
    send(peer, message::Dropped{drop.number});
    return true;
  });
}

void Agent::take_entries(Peer& peer) {
  peer.look = false;
  if (!peer.list || pool_.header().store.none()) return;
  std::vector<HandedOver> fresh = peer.list->list.unfinished();
  std::erase_if(fresh, [&](const HandedOver& entry) { return peer.taken.contains(entry.sequence); });
  for (const WholeObject& object : whole_objects(fresh)) {
    std::uint64_t bytes = 0;
    for (const HandedOver& part : object.parts) {
      peer.taken.insert(part.sequence);
      bytes += part.part.bytes;
    }
    peer.largest = std::max(peer.largest, bytes);
    peer.produced_at = clock_.now();
    writer_->add(peer.process->member, object);
  }
}

void Agent::finish_ended() {
  for (Peer& peer : peers_) {
    if (stuck(peer)) peer.connection.reset();  // it waits for no more
    if (!peer.ended || !peer.process || peer.look) continue;
    if (!writer_->idle(peer.process->member) || !peer.drops.empty()) continue;
    const Member member = peer.process->member;
    for (std::uint32_t slab = 0; slab < pool_.shape().slabs(); ++slab) {
      if (pool_.tables().take_back(slab, member)) static_cast<void>(pool_.punch(slab));
    }
    std::erase_if(leases_, [&](const Lease& lease) { return lease.borrower == member; });
    peer.list.reset();
    static_cast<void>(pool_.dismiss(member));
    writer_->forget(member);
    peer.process.reset();
    peer.connection.reset();
    answer_waiting_claims();
  }
  std::erase_if(peers_, [](const Peer& peer) { return !peer.process && !peer.connection; });
}

// A process is gone, and what it left cannot be written for now: that stays in the pool.
const Error* Agent::stuck(const Peer& peer) const {
  if (!peer.ended || !peer.process || peer.look || refused_) return nullptr;
  return writer_->stuck(peer.process->member);
}

bool Agent::dead_have_left_something() const {
  if (refused_) return false;  // not for this agent
  return std::ranges::any_of(peers_,
                             [this](const Peer& peer) { return peer.ended && peer.process && stuck(peer) == nullptr; });
}

// The next agent does not have the pieces that this one has.
bool Agent::pieces_are_coming() const {
  return !refused_ && clock_.now() - stopped_at_ < kPiecesLimit && writer_->has_pieces();
}

// --- the end ---------------------------------------------------------------------------------------------------------

bool Agent::may_end() {
  // Without a store there is nothing to do for those that have been told so: their lists are an agent's that has one.
  const bool awaited = std::ranges::any_of(
      peers_, [this](const Peer& peer) { return stuck(peer) ? false : !refused_ || peer.connection; });
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
  if (pool_.named()) static_cast<void>(seams_.memory->remove(pool_name(pool_.header().job)));
  queue_.leave();
}

}  // namespace ebb::share
