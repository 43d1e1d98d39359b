#include "veloc/job.hpp"

#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <thread>
#include <utility>

#include "ebbtide/machine.hpp"
#include "ebbtide/mpi.hpp"
#include "veloc/say.hpp"

namespace ebb::veloc {

namespace {

constexpr int kOthers = 60;      // seconds that opening waits for what others write in `persistent`
constexpr Seconds kSends(3600);  // that opening waits for what the node's backend sends

int ranks_of_this_node(MPI_Comm comm) {
  MPI_Comm here = MPI_COMM_NULL;
  int count = 1;
  MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here);
  MPI_Comm_size(here, &count);
  MPI_Comm_free(&here);
  return count;
}

// The same for all ranks of a node, and for the jobs that follow each other there.
std::uint64_t pool_bytes(const Config& config, int ranks) {
  constexpr std::uint64_t kPart = 4, kRound = 1 << 20;  // of the memory that files in it may take
  constexpr std::uint64_t kLeast = 64 << 20;            // of a rank, where that is not known
  if (config.options.host_cache) return *config.options.host_cache * static_cast<std::uint64_t>(ranks);
  std::error_code failed;
  const auto space = std::filesystem::space("/dev/shm", failed);
  return failed ? kLeast * static_cast<std::uint64_t>(ranks) : space.capacity / kPart / kRound * kRound;
}

// The rank's caches are in the pool of its node from here on.
Result<Relay> enter(Config& config, const Peers& peers, int ranks_here) {
  auto relay = Relay::open(config.relay);
  if (!relay) return relay;
  if (auto same = relay->check_count(peers.count()); !same) return same.error();
  auto entered = relay->enter(peers.rank(), Seconds(0));
  if (!entered && entered.error().code == Errc::in_use) {
    say("Init", entered.error().message + ", and sends what an earlier job left here: this one waits for that");
    entered = relay->enter(peers.rank(), kSends);
  }
  if (!entered && entered.error().code == Errc::in_use)
    return Error{Errc::in_use, entered.error().message + " after an hour still: see its log, or end it"};
  if (!entered) return entered.error();
  config.options = pooled(config, pool_bytes(config, ranks_here));
  return relay;
}

Result<Job> open_stores(Config config, const std::function<std::unique_ptr<Collective>()>& ranks, Peers peers,
                        std::optional<Relay> relay) {
  Options& options = config.options;
  if (options.shared) options.veloc_rank = static_cast<std::uint64_t>(peers.rank());
  if (!options.device_cache && machine::gpus().empty())
    options.device_cache = 0;  // host memory need not be there twice
  auto opened = Group::open(ranks(), options);
  for (int waited = 0; relay && waited < kOthers; ++waited) {  // another node's backend may have a rank's files
    enum : std::int64_t { failed, in_use, done };
    const Errc mine = opened ? Errc::dropped : opened.error().code;  // dropped: another rank's failed
    const auto least = peers.least(mine == Errc::dropped ? done : mine == Errc::in_use ? in_use : failed);
    if (!least) return least.error();
    if (*least != in_use) break;
    if (!opened && waited == 0) say("Init", opened.error().message + "; it is tried again");
    std::this_thread::sleep_for(std::chrono::seconds(1));
    opened = Group::open(ranks(), options);
  }
  if (!opened) return opened.error();
  if (peers.leads())
    for (const std::string& note : config.notes) say("Init", note);
  return Job{std::move(config), std::move(*opened), std::move(peers), std::move(relay)};
}

}  // namespace

Result<Job> open_job(MPI_Comm comm, const std::string& file) {
  int begun = 0, over = 0;
  MPI_Initialized(&begun);
  MPI_Finalized(&over);
  if (!begun || over)
    return Error{Errc::invalid_argument, over ? "MPI_Finalize came before it" : "MPI_Init comes first"};
  if (comm == MPI_COMM_NULL) return Error{Errc::invalid_argument, "the communicator is MPI_COMM_NULL"};
  auto config = read_config(file);
  Peers peers(collective(comm));
  if (auto read = peers.all(config ? Result<void>() : config.error(), "reading the configuration"); !read)
    return read.error();
  std::error_code ignored;
  const bool here = config->options.shared && std::filesystem::exists(config->relay, ignored);
  const auto nowhere = peers.least(here ? 0 : 1);
  if (!nowhere) return nowhere.error();
  std::optional<Relay> relay;
  if (*nowhere == 0) {
    auto entered = enter(*config, peers, ranks_of_this_node(comm));
    if (entered) relay.emplace(std::move(*entered));
    if (auto all = peers.all(entered ? Result<void>() : entered.error(), "meeting the backend"); !all)
      return all.error();
  }
  auto job = open_stores(std::move(*config), [comm] { return collective(comm); }, std::move(peers), std::move(relay));
  if (job) job->over_mpi = true;
  return job;
}

Result<Job> open_job(unsigned id, const std::string& file) {
  if (id > static_cast<unsigned>(std::numeric_limits<int>::max()))
    return Error{Errc::invalid_argument, "the id " + std::to_string(id) + " is not valid: give one below 2^31"};
  auto config = read_config(file);
  if (!config) return config.error();
  const auto single = [id] { return alone(static_cast<int>(id)); };
  return open_stores(std::move(*config), single, Peers(single()), {});
}

}  // namespace ebb::veloc
