// What leases of GPU memory cost between two processes, each with its own GPU: how long a lender waits for its memory,
// with room in the borrower's host cache (as it opens, and all of it pinned at first) and without; how long the first
// recall of a process takes, as soon as it has borrowed and two seconds later; and that no byte is lost and nothing
// hangs when either is killed while the borrower writes. This program starts itself as lender and as borrower, and
// tells them what to do by lines.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "benches/gpu_common.hpp"
#include "ebbtide/store.hpp"

namespace {

constexpr std::size_t kSize = std::size_t{128} << 20;  // of one checkpoint
constexpr double kPatience = 60;

double now() { return bench::seconds(bench::Clock::now().time_since_epoch()); }

bool comes_true(const std::function<bool()>& condition) {
  for (const double until = now() + kPatience; now() < until;) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

// ---- the two processes; an answer is a number, or negative with a reason on stderr

double refused(const ebb::Error& error) {
  std::cerr << error.message << '\n';
  return -1;
}

double lender_does(ebb::Store& store, const std::string& what, std::uint64_t bytes) {
  if (what == "lent") return static_cast<double>(store.stats().leases->lent);
  const double begun = now();
  const auto done = store.lend(bytes, ebb::Seconds(kPatience));
  return done ? now() - begun : refused(done.error());
}

/// Writes 128 MiB checkpoints of one byte value each, and reads them back.
class Borrower {
 public:
  explicit Borrower(ebb::Store& store)
      : store_(store), memory_(bench::make_device_buffer(kSize)), host_(bench::make_pinned_buffer(kSize)) {}

  double does(const std::string& what, std::uint64_t n) {
    if (what == "bare") return bare();
    if (what == "write") return write(n);
    if (what == "check") return wrong(n);
    if (what == "borrowed") return comes_true([&] { return store_.stats().leases->borrowed >= n; }) ? 0 : -1;
    if (what == "returned") return comes_true([&] { return store_.stats().leases->borrowed == 0; }) ? 0 : -1;
    if (what == "used") return static_cast<double>(peer().used);
    for (ebb::Version v = 0;; ++v) {  // "forever"
      const auto done = put(v);
      if (!done) return refused(done.error());
      if (v >= 16) static_cast<void>(static_cast<bool>(store_.drop(v - 16)));
    }
  }

 private:
  ebb::TierStats peer() const {
    for (const ebb::TierStats& tier : store_.stats().tiers) {
      if (tier.name == "peer") return tier;
    }
    return {};
  }
  ebb::Result<ebb::Future> put(ebb::Version v) {
    bench::check(cudaMemset(memory_.get(), static_cast<int>(v % 251), kSize), "cudaMemset");
    bench::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    return store_.checkpoint(v, {ebb::Source{0, memory_.get(), kSize}});
  }
  double write(std::uint64_t n) {
    const double begun = now();
    for (std::uint64_t v = 0; v < n; ++v) {
      if (const auto done = put(static_cast<ebb::Version>(v)); !done) return refused(done.error());
    }
    return now() - begun;
  }
  // Checkpoints that are missing or have a wrong byte; they are consumed.
  double wrong(std::uint64_t n) {
    double found = 0;
    for (std::uint64_t v = 0; v < n; ++v) {
      const auto done = store_.restore(static_cast<ebb::Version>(v), {ebb::Target{0, memory_.get(), kSize}});
      if (!done) static_cast<void>(refused(done.error()));
      bench::check(cudaMemcpy(host_.get(), memory_.get(), kSize, cudaMemcpyDeviceToHost), "cudaMemcpy");
      const auto first = static_cast<std::byte>(v % 251);
      const bool same = host_.get()[0] == first && std::memcmp(host_.get(), host_.get() + 1, kSize - 1) == 0;
      found += !done || !same;
    }
    return found;
  }
  // Bytes a second of a copy alone from this GPU to pinned memory.
  double bare() {
    bench::Stream stream;
    const auto copy = [&] {
      bench::check(cudaMemcpyAsync(host_.get(), memory_.get(), kSize, cudaMemcpyDeviceToHost, stream.get()), "copy");
      stream.wait();
    };
    copy();
    const double begun = now();
    for (int i = 0; i < 16; ++i) copy();
    return 16 * static_cast<double>(kSize) / (now() - begun);
  }

  ebb::Store& store_;
  bench::DeviceBuffer memory_;
  bench::PinnedBuffer host_;
};

int serve(const bench::Options& options) {
  const bool lends = options.text("role") == "lender";
  ebb::Options given;
  given.device = "cuda:" + std::to_string(options.number(lends ? "to" : "from"));
  given.device_cache = lends ? 0 : std::uint64_t{256} << 20;
  given.host_cache = lends ? 4096 : options.number("host");
  given.disk = lends ? 0 : options.number("disk");
  if (!lends && *given.disk > 0) given.directory = options.text("dir");
  if (lends) given.lend = options.number("bytes");
  if (!lends) given.borrow = options.number("bytes");
  if (!lends && options.number("warm") > 0) given.tuning.host_arena = ebb::HostArena::direct;
  auto store = ebb::Store::open(given).value();
  std::unique_ptr<Borrower> borrower;
  if (!lends) {
    bench::check(cudaSetDevice(static_cast<int>(options.number("from"))), "cudaSetDevice");
    borrower = std::make_unique<Borrower>(store);
  }
  std::cout << 0.0 << std::endl;  // it is open
  std::string what;
  for (std::uint64_t n = 0; std::cin >> what >> n;) {
    std::cout << (lends ? lender_does(store, what, n) : borrower->does(what, n)) << std::endl;
  }
  static_cast<void>(static_cast<bool>(store.close()));
  return 0;
}

// ---- who tells them

class Child {
 public:
  Child(const std::string& role, const std::vector<std::string>& arguments) {
    int to[2], from[2];
    if (::pipe2(to, O_CLOEXEC) != 0 || ::pipe2(from, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    std::vector<std::string> all{"gpu_leases", "--role", role};
    all.insert(all.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& one : all) argv.push_back(one.data());
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ < 0) throw std::runtime_error("no second process");
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::dup2(to[0], 0);
      ::dup2(from[1], 1);
      ::execv("/proc/self/exe", argv.data());
      ::_exit(127);
    }
    ::close(to[0]);
    ::close(from[1]);
    to_ = ::fdopen(to[1], "w");
    from_ = ::fdopen(from[0], "r");
    hears();
  }
  Child(const Child&) = delete;
  ~Child() {
    std::fclose(to_);
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
    std::fclose(from_);
  }
  void tell(const std::string& what, std::uint64_t n = 0) {
    std::fprintf(to_, "%s %llu\n", what.c_str(), static_cast<unsigned long long>(n));
    std::fflush(to_);
  }
  double hears() {
    double answer = -1;
    if (std::fscanf(from_, "%lf", &answer) != 1) throw std::runtime_error("a process has ended");
    if (answer < 0) throw std::runtime_error("a process refused, or waited too long");
    return answer;
  }
  double does(const std::string& what, std::uint64_t n = 0) {
    tell(what, n);
    return hears();
  }
  void kill() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
  std::FILE *to_ = nullptr, *from_ = nullptr;
};

struct Given {
  std::size_t bytes = 0, recalls = 0, kills = 0;
  std::string dir, from, to;

  std::vector<std::string> arguments(std::uint64_t host, std::uint64_t disk) const {
    return {"--bytes", std::to_string(bytes),
            "--host",  std::to_string(host),
            "--disk",  std::to_string(disk),
            "--dir",   dir,
            "--from",  from,
            "--to",    to};
  }
};

using Samples = std::map<std::string, std::vector<double>>;

/// The lender wants all of it back at once after the borrower has written that much. `before`: the borrower waits
/// between having borrowed and writing, as a program does that computes first.
void recalls(const Given& given, const std::string& name, std::uint64_t host, std::uint64_t disk, Samples& found,
             bool warm = false, std::chrono::milliseconds before = {}) {
  auto arguments = given.arguments(host, disk);
  if (warm) arguments.insert(arguments.end(), {"--warm", "1"});
  Child lender("lender", arguments), borrower("borrower", arguments);
  for (std::size_t i = 0; i < given.recalls; ++i) {
    if (i > 0) lender.does("lend", given.bytes);
    borrower.does("borrowed", given.bytes);
    std::this_thread::sleep_for(before);
    found["bare_bytes_per_s"].push_back(borrower.does("bare"));
    const std::size_t count = given.bytes / kSize;
    found[name + "_write_s"].push_back(borrower.does("write", count));
    found[name + "_used_bytes"].push_back(borrower.does("used"));
    found[name + "_recall_s"].push_back(lender.does("lend", 0));
    found[name + "_wrong"].push_back(borrower.does("check", count));
  }
}

/// Of as many pairs of new processes.
void first_recalls(Given given, const std::string& name, std::chrono::milliseconds before, Samples& found) {
  const std::size_t pairs = std::exchange(given.recalls, 1);
  for (std::size_t i = 0; i < pairs; ++i) recalls(given, name, 2 * given.bytes, 0, found, false, before);
}

void lender_kills(const Given& given, Samples& found) {
  const auto arguments = given.arguments(2 * given.bytes, 0);
  Child borrower("borrower", arguments);
  const std::size_t count = given.bytes / kSize;
  for (std::size_t i = 0; i < given.kills; ++i) {
    Child lender("lender", arguments);
    borrower.does("borrowed", given.bytes);
    borrower.tell("write", count);
    std::this_thread::sleep_for(std::chrono::milliseconds(2 * i));
    lender.kill();
    borrower.hears();
    found["lender_killed_wrong"].push_back(borrower.does("check", count));
    borrower.does("returned");
  }
}

void borrower_kills(const Given& given, Samples& found) {
  const auto arguments = given.arguments(2 * given.bytes, 0);
  Child lender("lender", arguments);
  for (std::size_t i = 0; i < given.kills; ++i) {
    if (i > 0) lender.does("lend", given.bytes);
    Child borrower("borrower", arguments);
    borrower.does("borrowed", given.bytes);
    borrower.tell("forever");
    std::this_thread::sleep_for(std::chrono::milliseconds(100 + i));
    borrower.kill();
    found["borrower_killed_recall_s"].push_back(lender.does("lend", 0));
    found["borrower_killed_still_lent"].push_back(lender.does("lent"));
  }
}

}  // namespace

int main(int argc, char** argv) try {
  const bench::Options options(argc, argv,
                               {{"json", ""},
                                {"dir", "/tmp"},
                                {"role", ""},
                                {"bytes", "4294967296"},
                                {"host", "0"},
                                {"disk", "0"},
                                {"warm", "0"},
                                {"recalls", "5"},
                                {"firsts", "5"},
                                {"kills", "25"},
                                {"from", "0"},
                                {"to", "1"}});
  if (!options.text("role").empty()) return serve(options);
  const Given given{options.number("bytes"), options.number("recalls"), options.number("kills"),
                    options.text("dir"),     options.text("from"),      options.text("to")};
  ::alarm(540);  // whatever hangs; the two processes end with this one
  Samples found;
  int status = 0;
  const auto part = [&](const char* name, const std::function<void()>& work) {
    const double begun = now();
    try {
      work();
      std::printf("%s: %.1f s\n", name, now() - begun);
    } catch (const std::exception& error) {
      std::printf("%s FAILED: %s\n", name, error.what());
      status = 1;
    }
    bench::Json json;
    json.put("bytes", static_cast<double>(given.bytes));
    for (const auto& [what, values] : found) {
      json.put(what, values);
      std::printf("  %s: median %.6g, most %.6g of %zu\n", what.c_str(), bench::median(values),
                  *std::max_element(values.begin(), values.end()), values.size());
    }
    std::fflush(stdout);
    if (!options.text("json").empty()) json.write(options.text("json"));
  };
  part("recall, room in the host cache", [&] { recalls(given, "room", 2 * given.bytes, 0, found); });
  part("recall, room in memory that is pinned", [&] { recalls(given, "warm", 2 * given.bytes, 0, found, true); });
  part("recall, host cache full", [&] { recalls(given, "full", given.bytes / 8, 4 * given.bytes, found); });
  const Given firsts{given.bytes, options.number("firsts"), 0, given.dir, given.from, given.to};
  part("first recall of a process, at once", [&] { first_recalls(firsts, "at_once", {}, found); });
  part("the same, two seconds later", [&] { first_recalls(firsts, "later", std::chrono::seconds(2), found); });
  part("lenders killed", [&] { lender_kills(given, found); });
  part("borrowers killed", [&] { borrower_kills(given, found); });
  return status;
} catch (const std::exception& error) {
  std::fprintf(stderr, "gpu_leases: %s\n", error.what());
  return 1;
}
