#include "share/member/pool_member.hpp"

#include <algorithm>
#include <numeric>
#include <thread>

#include "base/start_thread.hpp"
#include "share/agent/dead_pools.hpp"
#include "share/agent/start_agent.hpp"
#include "share/node_turn.hpp"

namespace ebb::share {
namespace {

using std::chrono::milliseconds;

constexpr std::int64_t kLeaveLimit = 5 * os::kSecond;
constexpr int kMostAgents = 10;                           // that end in a row, before they have answered,
constexpr std::int64_t kAgentsLimit = 20 * os::kSecond;   // and at least so long
constexpr std::int64_t kEndLimit = 5 * os::kSecond;       // for processes that are ending
constexpr std::int64_t kAnswerLimit = 300 * os::kSecond;  // for an agent that first writes what dead processes left
constexpr std::int64_t kStoppedLimit = 10 * os::kSecond;  // for one that is stopped
constexpr milliseconds kAgentPause{10};                   // longer each time, before the next agent is looked for

}  // namespace

NodeSeams NodeSeams::usual() {
  return {std::make_shared<os::TmpfsSharedMemory>(), std::make_shared<os::UnixSockets>(),
          os::NodePinQueue::usual_directories()};
}

Result<std::shared_ptr<PoolMember>> PoolMember::join(const NodeSeams& seams, os::Files& files, os::Clock& clock,
                                                     const NodeStorageOptions& options) {
  std::shared_ptr<PoolMember> member(new PoolMember(seams, files, clock, options));
  if (auto joined = member->rejoin(); !joined) return joined.error();
  return member;
}

// An agent that left at the same moment did not hear it: the next one does, which may be a thread of this process. One
// that does not answer now hears it later.
PoolMember::~PoolMember() {
  memory_ = {};
  list_.reset();
  for (int agents = 0; agents < kMostAgents && agents_ > 0 && is_member(welcome_.member); ++agents) {
    if (agents > 0 && !rejoin()) break;
    send(message::Leave{});
    stop_own_agent();
    const std::int64_t until = clock_.now() + kLeaveLimit;
    bool connected = true;
    while ((connected = static_cast<bool>(receive())) && clock_.now() < until) wait(-1, milliseconds{20});
    if (connected) break;
  }
  stop_own_agent();
}

bool PoolMember::is_member(Member member) const {
  return pool_ && member.slot < pool_->shape().processes && !pool_->tables().has_left(member);
}

void PoolMember::stop_own_agent() {
  if (!agent_) return;
  agent_->stop();
  agent_thread_.join();
  agent_.reset();
}

Result<void> PoolMember::rejoin() {
  const std::int64_t begun = clock_.now();
  for (int agents = 1;; ++agents) {
    auto joined = join_once();
    if (joined) return joined;
    const std::int64_t since = clock_.now() - begun;
    const Errc why = joined.error().code;
    const bool passing = why == Errc::closed || (why == Errc::out_of_memory && agents_ > 0);  // no thread for an agent
    if (seems_elsewhere_ ? since > kEndLimit : !passing) return joined;
    if (agents >= kMostAgents && since > kAgentsLimit) return joined;
    std::this_thread::sleep_for(kAgentPause * (agents - 1));
  }
}

Result<void> PoolMember::join_once() {
  stop_own_agent();
  seems_elsewhere_ = false;
  {
    const std::lock_guard lock(mutex_);
    connection_.reset();
    admitted_ = false;
    outgoing_.clear();
  }
  if (auto connected = connect(); !connected) return connected;
  auto welcome = await_welcome();
  if (!welcome) {
    const std::lock_guard lock(mutex_);
    connection_.reset();
    return welcome.error();
  }
  const bool first = agents_ == 0;
  if (first && !is_member((*welcome).member)) {
    return leave({Errc::closed, "the agent of a pool that was removed is ending"});
  }
  {
    const std::lock_guard lock(mutex_);
    admitted_ = true;
  }
  ++agents_;
  program_ = (*welcome).program;
  if (!first) return {};
  welcome_ = *welcome;
  const PoolShape& shape = pool_->shape();
  if (welcome_.slabs == 0 || welcome_.slabs > shape.slabs() || welcome_.first_slab > shape.slabs() - welcome_.slabs) {
    return Error{Errc::damaged, "the agent of this job's pool gave memory that the pool does not have"};
  }
  std::vector<std::uint32_t> run(welcome_.slabs);
  std::iota(run.begin(), run.end(), welcome_.first_slab);
  auto mapped = pool_->map(run);
  if (!mapped) return mapped.error();
  memory_ = std::move(*mapped);
  auto list = pool_->list(welcome_.member);
  if (!list) return list.error();
  list_.emplace(std::move(*list));
  return {};
}

Result<message::Welcome> PoolMember::await_welcome() {
  const std::int64_t begun = clock_.now();
  std::int64_t stopped_at = INT64_MAX;
  for (;;) {
    auto answer = receive();
    if (!answer) return answer.error();
    if (*answer) {
      if (const auto* refused = std::get_if<message::Refused>(&**answer)) return refused->error;
      if (const auto* welcome = std::get_if<message::Welcome>(&**answer)) return *welcome;
      continue;
    }
    const std::int64_t now = clock_.now();
    const auto stopped = stopped_agent();
    stopped_at = stopped ? std::min(stopped_at, now) : INT64_MAX;
    const bool member = agents_ > 0;  // what it has handed over is in its list meanwhile
    if (stopped && !member && now - stopped_at > kStoppedLimit) return leave({Errc::timed_out, *stopped});
    if (!stopped && now - begun > kAnswerLimit) {
      return leave({Errc::timed_out, "the agent of this job's pool has not answered"});
    }
    wait(-1, milliseconds{100});
  }
}

// If it is admitted nevertheless, it says at once that it has left.
Error PoolMember::leave(Error why) {
  const std::lock_guard lock(mutex_);
  if (agents_ == 0 && connection_) static_cast<void>(connection_->send(message::encode(message::Leave{})));
  return why;
}

std::optional<std::string> PoolMember::stopped_agent() {
  const std::lock_guard lock(mutex_);
  if (!connection_ || !os::is_stopped(files_, connection_->peer())) return {};
  return "the agent of this job's pool, process " + std::to_string(connection_->peer()) +
         ", does not answer: it is stopped, and goes on with SIGCONT";
}

// An agent that died before it could say so may have admitted this process, which then comes as the member that it is.
void PoolMember::look_for_membership(const os::ProcessId& process) {
  welcome_.member = {};
  std::vector<Member> mine;
  const PoolShape& shape = pool_->shape();
  for (std::uint32_t slot = 0; slot < shape.processes; ++slot) {
    const auto one = pool_->tables().process(slot);
    if (!one || one->process != process || one->rank != options_.pool.rank) continue;
    mine.push_back(one->member);
    const std::uint64_t first = slot * (one->share / shape.slab_bytes());
    const auto slab = first < shape.slabs() ? pool_->tables().slab(static_cast<std::uint32_t>(first)) : std::nullopt;
    const bool lent = slab && slab->state == SlabState::lent && slab->owner == one->member;
    if (lent && known_ && std::ranges::find(*known_, one->member) == known_->end()) welcome_.member = one->member;
  }
  if (!known_) known_ = std::move(mine);
}

// Whether a member seems to live in another PID namespace: no agent of this one may answer for it. So does a process
// that has ended until the system has let go of its memory, which a GPU's driver holds a while.
bool PoolMember::used_elsewhere(const PoolFile& pool) const {
  for (std::uint32_t slot = 0; slot < pool.shape().processes; ++slot) {
    const auto one = pool.tables().process(slot);
    if (one && pool.may_use(one->process, files_) && !os::is_running(files_, one->process)) return true;
  }
  return false;
}

// Connects to the agent of this job, and starts one if there is none. Holds the queue of the node's processes, so that
// one process alone does so, and no agent ends meanwhile.
Result<void> PoolMember::connect() {
  const auto shape = choose_shape(options_.pool.budget, options_.pool.chunk_bytes, options_.pool.ranks);
  if (!shape) return shape.error();
  PoolHeader header{*shape, options_.pool.job, pool_store(options_.store)};
  header.store.overflow = options_.pool.overflow;
  if (header.store.directory.size() > kMaxDirectory) {
    return Error{Errc::invalid_argument, "a pool's store has a directory of " +
                                             std::to_string(header.store.directory.size()) +
                                             " bytes: expected at most " + std::to_string(kMaxDirectory)};
  }
  const auto process = os::this_process(files_);
  if (!process) return process.error();
  auto pidfd = seams_.sockets->this_process();
  if (!pidfd) return pidfd.error();

  if (agents_ == 0) welcome_.member = {};
  NodeTurn turn(seams_);
  if (auto called = turn.wait(clock_); !called) return called;
  auto connection = seams_.sockets->connect(socket_name(options_.pool.job));
  if (!connection) return connection.error();
  if (!*connection) connection = start(header);
  if (!connection) return connection.error();
  if ((*connection)->peer() == 0) return of_another_namespace();
  auto pool = open_pool(header);
  if (!pool && pool.error().code == Errc::lost && agents_ == 0) {
    return Error{Errc::closed, "the agent of a pool that was removed is ending"};
  }
  if (!pool) return pool.error();
  if (agents_ == 0) {  // an agent that died meanwhile may have had another file
    if (auto held = pool->hold(*process); !held) return held;
    pool_.emplace(std::move(*pool));
    look_for_membership(*process);
  }
  const std::lock_guard lock(mutex_);
  connection_ = std::move(*connection);
  const auto hello = message::encode(
      message::Hello{kPoolVersion, header, *process, options_.pool.rank, options_.pool.ranks, welcome_.member});
  const auto sent = connection_->send(hello, (*pidfd).fd());
  if (!sent) return sent.error();
  if (!*sent) return Error{Errc::io_error, "the agent of this job's pool takes no message"};
  return {};
}

Result<PoolFile> PoolMember::open_pool(const PoolHeader& header) {
  auto file = seams_.memory->open(pool_name(header.job));
  if (!file) return file.error();
  if (!*file) return Error{Errc::lost, "the file of this job's pool was removed"};
  return PoolFile::open(std::move(*file));
}

Result<std::unique_ptr<os::LocalConnection>> PoolMember::start(const PoolHeader& header) {
  if (auto finished = finish_dead_jobs(); !finished) return finished.error();
  const std::string name = pool_name(header.job);
  std::optional<PoolFile> held;  // a pool without a process is not taken for a dead one's
  const auto make = [&]() -> Result<void> {
    auto made = seams_.memory->create(name);
    if (!made) return made.error();
    auto created = PoolFile::create(std::move(*made), header);
    if (!created) return created.error();
    held.emplace(std::move(*created));
    return {};
  };
  auto file = seams_.memory->open(name);
  if (!file) return file.error();
  if (welcome_.member.generation != 0 && !*file) {
    return Error{Errc::lost, "the file of this job's pool was removed"};
  }
  if (!*file) {
    if (auto made = make(); !made) return made.error();
  } else if (auto opened = PoolFile::open(std::move(*file)); !opened) {
    if (opened.error().code != Errc::lost) {
      return Error{opened.error().code, "the shared memory " + name + " is not this job's pool: " +
                                            opened.error().message + "; remove the file if nothing needs it"};
    }
    if (auto removed = seams_.memory->remove(name); !removed) return removed.error();
    if (auto made = make(); !made) return made.error();
  } else if (seems_elsewhere_ = used_elsewhere(*opened); seems_elsewhere_) {
    return of_another_namespace();
  }

  const auto program = options_.pool.program ? agent_program() : std::nullopt;
  if (program) {
    if (auto started = start_agent(*program, header.job); !started) return started.error();
  } else {
    auto pool = open_pool(header);
    if (!pool) return pool.error();
    auto listener = seams_.sockets->listen(socket_name(header.job));
    if (!listener) return listener.error();
    agent_ = std::make_unique<Agent>(seams_, files_, clock_, std::move(*pool), std::move(*listener), false);
    auto thread = base::start_thread([agent = agent_.get()] { static_cast<void>(agent->run()); });
    if (!thread) {
      agent_.reset();
      return thread.error();
    }
    agent_thread_ = std::move(*thread);
  }
  auto connection = seams_.sockets->connect(socket_name(header.job));
  if (connection && !*connection) return Error{Errc::closed, "the agent of this job's pool ended at once"};
  return connection;
}

// Of pools whose processes are all gone: what they hold goes to their own stores. One that cannot be finished stays,
// unless it is this job's.
Result<void> PoolMember::finish_dead_jobs() {
  const auto names = seams_.memory->list();
  if (!names) return {};  // no directory: no pool
  for (const std::string& name : *names) {
    if (!is_pool_name(name)) continue;
    const auto finished = finish_if_dead(seams_, files_, clock_, name);
    if (!finished && name == pool_name(options_.pool.job) && finished.error().code != Errc::damaged) {
      return Error{finished.error().code,
                   "an earlier run of this job left checkpoints in its pool, which cannot be "
                   "written to its store: " +
                       finished.error().message};
    }
  }
  return {};
}

Result<os::SharedMapping> PoolMember::map(std::uint32_t first, std::uint32_t slabs) const {
  if (first >= pool_->shape().slabs() || slabs > pool_->shape().slabs() - first) {
    return Error{Errc::damaged, "the agent of this job's pool lends slabs that the pool does not have"};
  }
  std::vector<std::uint32_t> range(slabs);
  std::iota(range.begin(), range.end(), first);
  return pool_->map(range);
}

// --- messages --------------------------------------------------------------------------------------------------------

bool PoolMember::send(const message::Any& message, int descriptor) {
  const std::lock_guard lock(mutex_);
  if (!admitted_) return false;
  if (descriptor >= 0) {
    const auto sent = connection_->send(message::encode(message), descriptor);
    return sent && *sent;
  }
  outgoing_.push_back(message::encode(message));
  while (!outgoing_.empty()) {
    const auto sent = connection_->send(outgoing_.front());
    if (sent && !*sent) break;
    outgoing_.pop_front();  // of a closed connection too: receive() reports that
  }
  return true;
}

Result<std::optional<message::Any>> PoolMember::receive() {
  std::array<std::byte, os::kMaxMessage> buffer;
  const std::lock_guard lock(mutex_);
  const Error gone{Errc::closed, "the agent of this job's pool is gone"};
  if (!connection_) return gone;
  while (!outgoing_.empty()) {
    const auto sent = connection_->send(outgoing_.front());
    if (sent && !*sent) break;
    outgoing_.pop_front();
  }
  auto received = connection_->receive(buffer);
  if (!received || received->kind == os::Received::Kind::closed) return gone;
  if (received->kind == os::Received::Kind::nothing) return std::optional<message::Any>();
  auto parsed = message::parse({buffer.data(), received->bytes});
  if (!parsed) return gone;
  return std::optional<message::Any>(std::move(*parsed));
}

void PoolMember::wait(int bell, milliseconds limit) {
  std::vector<os::Waiting> all;
  all.reserve(2);
  {
    const std::lock_guard lock(mutex_);
    if (connection_) all.push_back({connection_->fd(), !outgoing_.empty()});
  }
  if (bell >= 0) all.push_back({bell});
  static_cast<void>(seams_.sockets->wait(all, limit));
}

std::string PoolMember::describe() const {
  return "pool of " + std::to_string(pool_->shape().budget) + " bytes in chunks of " +
         std::to_string(pool_->shape().chunk_bytes) + ", " + std::to_string(slabs() * slab_bytes()) +
         " bytes for this process, agent: " + (program_ ? "a program" : "a thread");
}

}  // namespace ebb::share
