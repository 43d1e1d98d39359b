// veloc-backend CONFIG [--disable-ec]: sends what the jobs of this node left behind to `persistent`.
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <sys/file.h>
#include <sys/wait.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <vector>

#include "ebbtide/node.hpp"
#include "ebbtide/store.hpp"
#include "veloc/config.hpp"
#include "veloc/relay.hpp"
#include "veloc/say.hpp"

namespace {

using namespace ebb;
using namespace ebb::veloc;

constexpr const char* kName = "veloc-backend";
constexpr std::uint64_t kCache = 64 << 20;
constexpr std::string_view kRank = "rank-";
constexpr const char* kSent = ".sent";  // after the name of a store that is being removed
constexpr std::chrono::milliseconds kLook{100}, kAgain{500},
    kSeldom{60'000};                        // between looks for ranks; after failures
constexpr std::chrono::seconds kDrain{10};  // then ranks may start

std::optional<std::string> job_of_pool(const std::vector<admin::Pool>& pools, const std::filesystem::path& directory) {
  for (const admin::Pool& pool : pools)
    if (!pool.error && pool.directory == directory) return pool.job;
  return {};
}

// What the ranks had in memory is in the node's store afterwards, whatever became of their agent, which is gone as
// well.
Result<void> drain_pool(const std::filesystem::path& directory) {
  for (const auto until = std::chrono::steady_clock::now() + kDrain;; std::this_thread::sleep_for(kLook)) {
    const auto pools = admin::pools();
    if (!pools) return pools.error();
    const auto job = job_of_pool(*pools, directory);
    if (!job) return {};
    const auto drained = admin::drain(*job, kDrain);
    if (!drained && drained.error().code != Errc::lost) return drained.error();
    if (std::chrono::steady_clock::now() >= until)
      return Error{Errc::timed_out, "the pool of job " + *job + " is in use still"};
  }
}

// As the rank itself: what its store has goes to `persistent`, where the next job's group says what is kept. With
// `persistent_interval` that is what `due` has.
Result<void> send(Options options, int rank, const std::vector<Due>& due = {}) {
  options.veloc_rank = static_cast<std::uint64_t>(rank);
  options.agreed = true;
  options.device_cache = 0;
  auto store = Store::open(options);
  if (!store) return store.error();
  Result<void> all;
  for (const auto& [name, version] : due) {
    const auto sent = store->history(name).wait(version, name_of(Durability::shared));
    if (!sent && sent.error().code != Errc::unknown_version && all)
      all = sent;  // unknown: void, or not needed any more
  }
  const auto closed = store->close();
  return all ? closed : all;
}

Result<void> send_all(const Config& config, const Relay& relay) {
  if (auto drained = drain_pool(config.node_directory.lexically_normal()); !drained) return drained;
  Options options = pooled(config, kCache);
  options.tuning.node_agent = false;
  Result<void> all;
  for (const int rank : relay.ranks()) {
    const auto due = relay.due(rank);
    auto sent = due ? send(options, rank, *due) : Result<void>(due.error());
    if (sent) sent = relay.forget(rank);
    if (all) all = sent;
  }
  return all;
}

// A job that began before the backend may have opened the store since: its lock is held then, or names another process.
// Under another name no job opens it.
Result<void> remove_sent(const std::filesystem::path& store) {
  const std::filesystem::path lock = store / "lock", sent = store.string() + kSent;
  const int held = ::open(lock.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (held < 0) return Error{Errc::io_error, lock.string() + ": opening it: " + std::generic_category().message(errno)};
  const auto removed = [&]() -> Result<void> {
    std::string holder;
    const bool locked = ::flock(held, LOCK_EX | LOCK_NB) == 0;
    if (locked) std::getline(std::ifstream(lock), holder);
    if (!holder.starts_with("process " + std::to_string(::getpid()) + " "))
      return Error{Errc::in_use, store.string() + " was opened again"};
    std::error_code failed;
    std::filesystem::rename(store, sent, failed);
    if (!failed) std::filesystem::remove_all(sent, failed);
    return failed ? Error{Errc::io_error, store.string() + ": removing it: " + failed.message()} : Result<void>();
  }();
  ::close(held);
  return removed;
}

// What jobs without a backend had left in stores of their own, which no later job would find: all of it, since the
// stores are removed. One that runs goes on.
Result<void> send_private(const Config& config) {
  Result<void> all;
  std::error_code failed;
  for (std::filesystem::directory_iterator at(*config.options.directory, failed), end; at != end;
       at.increment(failed)) {
    const std::string name = at->path().filename().string();
    int rank = 0;
    const char* const last = name.data() + name.size();
    if (!name.starts_with(kRank)) continue;
    std::error_code removed;
    if (name.ends_with(kSent)) std::filesystem::remove_all(at->path(), removed);  // by a backend that was killed
    if (removed && all) all = Error{Errc::io_error, at->path().string() + ": removing it: " + removed.message()};
    const auto [after, wrong] = std::from_chars(name.data() + kRank.size(), last, rank);
    if (wrong != std::errc() || after != last) continue;
    Options options = config.options;
    options.directory = at->path();
    options.host_cache = kCache;
    options.shared_every = {};
    auto sent = send(std::move(options), rank);
    if (sent) sent = remove_sent(at->path());
    if (!sent && sent.error().code != Errc::in_use && all) all = sent;
  }
  return all;
}

// A rank that starts meanwhile waits for it.
[[noreturn]] void serve(const Config& config, const Relay& relay) {
  std::string said;
  std::chrono::milliseconds again = kAgain;  // after a failure
  for (bool failed = true;; std::this_thread::sleep_for(failed ? again : kLook)) {
    if (!failed && relay.ranks().empty()) continue;
    auto sent = relay.await_ranks();
    if (sent) {
      const auto own = send_private(config);
      sent = send_all(config, relay);
      if (sent) sent = own;
    }
    relay.let_ranks_start();
    again = sent ? kAgain : std::min(2 * again, kSeldom);
    failed = !sent;
    if (sent) said.clear();
    if (!sent && sent.error().message != said) {
      said = sent.error().message;
      say(kName, said + "; it is tried again");
    }
  }
}

// A rank that starts from here on finds it, and waits for what it sends first, unless others run.
Result<Relay> begin(const Config& config) {
  auto relay = Relay::open(config.relay);
  if (!relay) return relay;
  if (auto serves = relay->serve(); !serves) return serves.error();
  if (auto first = relay->await_ranks(false); !first && first.error().code != Errc::in_use) return first.error();
  return relay;
}

int not_begun(const Error& error) {
  const bool another = error.code == Errc::in_use;
  say(kName, (another ? "a backend runs already: " : "") + error.message);
  return another ? 0 : 1;
}

// In the background, once it serves: the script goes on with a job that finds it.
int serve_in_the_background(const Config& config) {
  int serves[2];
  if (::pipe2(serves, O_CLOEXEC) != 0) return 1;
  const pid_t child = ::fork();
  if (child < 0) return 1;
  ::close(serves[child == 0 ? 0 : 1]);
  if (child > 0) {
    char byte = 0;
    if (::read(serves[0], &byte, 1) == 1) return 0;
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
  }
  ::setsid();
  if (::chdir("/") != 0) return 1;
  const auto relay = begin(config);
  if (!relay) return not_begun(relay.error());
  const std::filesystem::path file = config.relay / "log";
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  const int log = ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (nothing < 0 || log < 0 || ::write(serves[1], "s", 1) != 1) {
    say(kName, file.string() + " cannot be opened: expected a directory that can be written to");
    return 1;
  }
  for (const int fd : {0, 1}) ::dup2(nothing, fd);
  ::dup2(log, 2);
  serve(config, *relay);
}

Result<Config> read(const char* file) {
  auto config = read_config(file);
  if (!config) return config;
  if (config->sync)
    return Error{Errc::invalid_argument, std::string(file) +
                                             ": mode = sync is not valid for a backend: give async; with sync "
                                             "Checkpoint_end has sent everything when it returns"};
  if (!config->options.shared)
    return Error{Errc::invalid_argument, std::string(file) + ": nothing goes to persistent, so no backend is needed"};
  return config;
}

}  // namespace

int main(int argc, char** argv) {
  const bool background = argc == 3 && std::string_view(argv[2]) == "--disable-ec";
  if (argc != 2 && !background) {
    std::fprintf(stderr, "usage: veloc-backend CONFIG [--disable-ec]\n");
    return 2;
  }
  // A launcher's variables tell of the job in whose script it was started: this is one process by itself.
  ::setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "1", 1);
  try {
    const auto config = read(argv[1]);
    if (!config) {
      say(kName, config.error().message);
      return 1;
    }
    for (const std::string& note : config->notes) say(kName, note);
    if (background) return serve_in_the_background(*config);
    const auto relay = begin(*config);
    if (!relay) return not_begun(relay.error());
    serve(*config, *relay);
  } catch (const std::exception& failure) {
    say(kName, failure.what());
    return 1;
  }
}
