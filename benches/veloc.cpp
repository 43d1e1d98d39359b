// What VELOC's calls cost over what a program would do without them, as JSON of the slowest rank's seconds by turns.
// benches/veloc.py runs it, under mpirun where the ranks are several: `veloc --what stencil --dir D --json F`.
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <mpi.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <veloc.h>

#include "benches/common.hpp"
#include "benches/raw_io.hpp"
#include "ebbtide/store.hpp"

namespace {

namespace fs = std::filesystem;
using bench::Clock;
using bench::seconds;

constexpr int kWarm = 4;  // versions that touch the caches' memory

void require(bool holds, const char* what) {
  if (!holds) throw std::system_error(errno, std::generic_category(), what);
}
void ok(int answer, const char* call) {
  if (answer != VELOC_SUCCESS) throw std::runtime_error(std::string(call) + " failed");
}

struct Job {
  int rank = 0, count = 1, repeats = 5;
  fs::path directory;
  std::size_t bytes = 0;
  double interval_s = 0;
  bench::Json json;

  /// Of the slowest rank, all of which begin at once.
  double time(const std::function<void()>& work) const {
    MPI_Barrier(MPI_COMM_WORLD);
    const auto begun = Clock::now();
    work();
    double mine = seconds(Clock::now() - begun), most = 0;
    MPI_Allreduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return most;
  }
  void open(const std::string& lines) const {
    const fs::path file = directory / ("veloc." + std::to_string(rank) + ".cfg");
    std::ofstream(file) << "scratch = " << (directory / "scratch").string() << "\n" << lines;
    ok(VELOC_Init(MPI_COMM_WORLD, file.c_str()), "VELOC_Init");
  }
  std::string persistent() const { return "persistent = " + (directory / "persistent").string() + "\n"; }
  /// Without what an earlier part has left.
  void clear() const {
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
      for (const char* const each : {"scratch", "persistent", "plain"}) {
        fs::remove_all(directory / each);
        fs::create_directories(directory / each);
      }
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
};

/// A plane of doubles in stripes over the ranks.
class Stencil {
 public:
  Stencil(const Job& job, std::size_t bytes)
      : job_(job), rows_(bytes / sizeof(double) / kColumns), now_((rows_ + 2) * kColumns, job.rank), next_(now_) {}
  double* data() { return now_.data() + kColumns; }
  std::size_t bytes() const { return rows_ * kColumns * sizeof(double); }
  /// For about so long.
  void advance(double duration_s) {
    for (const auto begun = Clock::now();;) {
      step();
      double gone = seconds(Clock::now() - begun);
      MPI_Bcast(&gone, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
      if (gone >= duration_s) return;
    }
  }

 private:
  static constexpr std::size_t kColumns = 4096;
  double* row(std::size_t y) { return now_.data() + y * kColumns; }
  void step() {
    const int above = job_.rank > 0 ? job_.rank - 1 : MPI_PROC_NULL;
    const int below = job_.rank + 1 < job_.count ? job_.rank + 1 : MPI_PROC_NULL;
    MPI_Sendrecv(row(1), kColumns, MPI_DOUBLE, above, 0, row(rows_ + 1), kColumns, MPI_DOUBLE, below, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    MPI_Sendrecv(row(rows_), kColumns, MPI_DOUBLE, below, 1, row(0), kColumns, MPI_DOUBLE, above, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    for (std::size_t at = kColumns + 1; at + 1 < (rows_ + 1) * kColumns; ++at)
      next_[at] = 0.25 * (now_[at - kColumns] + now_[at + kColumns] + now_[at - 1] + now_[at + 1]);
    std::swap_ranges(now_.begin() + kColumns, now_.end() - kColumns, next_.begin() + kColumns);
  }

  const Job& job_;
  std::size_t rows_;
  std::vector<double> now_, next_;
};

/// What a program does that wants its file whole.
void write_plainly(const fs::path& path, const void* data, std::size_t bytes) {
  const fs::path part = path.string() + ".part";
  const int file = ::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  require(file >= 0, "open");
  for (std::size_t at = 0; at < bytes;) {
    const ssize_t written = ::write(file, static_cast<const char*>(data) + at, bytes - at);
    require(written > 0, "write");
    at += static_cast<std::size_t>(written);
  }
  require(::fsync(file) == 0 && ::close(file) == 0, "fsync");
  fs::rename(part, path);
}

// Blocked: the call, and what is left of the wait for it when the program has computed.
void stencil(Job& job) {
  job.clear();
  Stencil field(job, job.bytes);
  job.open(job.persistent() + "mode = async\nmax_versions = 2\nhost_cache_size = 0.3\n");
  ok(VELOC_Mem_protect(0, field.data(), field.bytes(), 1), "VELOC_Mem_protect");
  std::vector<double> plain, ours, waited;
  for (int version = 0; version < job.repeats + kWarm; ++version) {
    field.advance(job.interval_s);
    const fs::path file = job.directory / "plain" / ("heat-" + std::to_string(job.rank) + ".dat");
    const double written = job.time([&] { write_plainly(file, field.data(), field.bytes()); });
    field.advance(job.interval_s);
    const double called = job.time([&] { ok(VELOC_Checkpoint("heat", version), "VELOC_Checkpoint"); });
    field.advance(job.interval_s);
    const double rest = job.time([&] { ok(VELOC_Checkpoint_wait(), "VELOC_Checkpoint_wait"); });
    if (version < kWarm) continue;
    plain.push_back(written);
    ours.push_back(called + rest);
    waited.push_back(rest);
  }
  ok(VELOC_Finalize(1), "VELOC_Finalize");
  job.json.put("plain_s", plain).put("ours_s", ours).put("ours_wait_s", waited);
}

/// Bare requests of a MiB, eight at once, to and from a file of its own, past the page cache.
class Bare {
 public:
  Bare(const fs::path& path, std::size_t bytes) : bytes_(bytes), memory_(bench::make_buffer(bytes)) {
    file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0600);
    require(file_ >= 0, "open with O_DIRECT");
  }
  Bare(const Bare&) = delete;
  ~Bare() { ::close(file_); }
  std::byte* data() { return memory_.get(); }
  void write() {
    require(::ftruncate(file_, 0) == 0 && ::posix_fallocate(file_, 0, static_cast<off_t>(bytes_)) == 0, "fallocate");
    move([&](std::size_t at, std::size_t bytes) {
      return ::pwrite(file_, memory_.get() + at, bytes, static_cast<off_t>(at));
    });
    require(::fdatasync(file_) == 0, "fdatasync");
  }
  void read() {
    move([&](std::size_t at, std::size_t bytes) {
      return ::pread(file_, memory_.get() + at, bytes, static_cast<off_t>(at));
    });
  }

 private:
  template <class Call>
  void move(const Call& call) {
    constexpr std::size_t kRequest = 1 << 20, kThreads = 8;
    std::vector<std::thread> threads;
    std::atomic<std::size_t> next{0};
    std::atomic<bool> failed{false};
    for (std::size_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        for (std::size_t at; (at = next.fetch_add(kRequest)) < bytes_;) {
          const std::size_t bytes = std::min(kRequest, bytes_ - at);
          if (call(at, bytes) != static_cast<ssize_t>(bytes)) failed = true;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    require(!failed, "a bare transfer");
  }
  std::size_t bytes_;
  bench::Buffer memory_;
  int file_ = -1;
};

/// The same bytes, bare and by a checkpoint with mode = sync; then read, by a job that begins anew each time.
void sync_and_restart(Job& job, const std::string& places) {
  job.clear();
  Bare bare(job.directory / "plain" / std::to_string(job.rank), job.bytes);
  std::vector<double> bare_write, write, bare_read, test, read;
  const auto open = [&] {
    job.open(places + "mode = sync\nmax_versions = 2\nscratch_versions = 2\nhost_cache_size = 0.3\n");
    ok(VELOC_Mem_protect(0, bare.data(), job.bytes, 1), "VELOC_Mem_protect");
  };
  open();
  for (int version = 0; version < job.repeats + kWarm; ++version) {
    const double bare_s = job.time([&] { bare.write(); });
    const double ours_s = job.time([&] { ok(VELOC_Checkpoint("heat", version), "VELOC_Checkpoint"); });
    if (version < kWarm) continue;
    bare_write.push_back(bare_s);
    write.push_back(ours_s);
  }
  ok(VELOC_Finalize(1), "VELOC_Finalize");
  for (int turn = 0; turn < job.repeats; ++turn) {
    bare_read.push_back(job.time([&] { bare.read(); }));
    open();
    int newest = -1;
    test.push_back(job.time([&] { newest = VELOC_Restart_test("heat", 0); }));
    read.push_back(job.time([&] { ok(VELOC_Restart("heat", newest), "VELOC_Restart"); }));
    ok(VELOC_Finalize(1), "VELOC_Finalize");
  }
  job.json.put("bare_write_s", bare_write).put("sync_s", write);
  job.json.put("bare_read_s", bare_read).put("restart_test_s", test).put("restart_s", read);
}

constexpr const char* kCached = "mode = async\nhost_cache_size = 0.25\n";

/// Microseconds of each call of a block, the memory of the caches touched.
std::vector<double> each_us(int calls, const std::function<void(int)>& call) {
  std::vector<double> all;
  for (int i = 0; i < calls; ++i) {
    const auto begun = Clock::now();
    call(i);
    all.push_back(seconds(Clock::now() - begun) * 1e6);
  }
  return all;
}

void regions(Job& job) {
  constexpr int kRegions = 64, kCalls = 50;
  constexpr std::size_t kBytes = 1 << 10;
  job.clear();
  job.open(job.persistent() + kCached);
  std::vector<std::byte> memory(kRegions * kBytes);
  for (int id = 0; id < kRegions; ++id)
    ok(VELOC_Region_protect(id, memory.data() + static_cast<std::size_t>(id) * kBytes, kBytes, 1, "many"), "protect");
  ok(VELOC_Region_protect(0, memory.data(), memory.size(), 1, "one"), "protect");
  std::vector<double> many, one;
  for (int turn = 0; turn < job.repeats + 1; ++turn) {
    for (const bool of_many : {true, false}) {
      const auto taken = each_us(kCalls, [&](int i) {
        ok(VELOC_Checkpoint(of_many ? "many" : "one", turn * kCalls + i), "VELOC_Checkpoint");
      });
      ok(VELOC_Checkpoint_wait(), "VELOC_Checkpoint_wait");
      if (turn > 0) (of_many ? many : one).push_back(bench::median(taken));
    }
  }
  ok(VELOC_Finalize(1), "VELOC_Finalize");
  job.json.put("many_us", many).put("one_us", one);
}

// The same options: a rank's store as the client opens it, but for the directory.
void calls(Job& job) {
  constexpr int kCalls = 200;
  job.clear();
  job.open(std::string("disable_persistence = true\n") + kCached);
  ebb::Options options{.directory = job.directory / "plain", .host_cache = std::uint64_t{256} << 20};
  options.durability = ebb::Durability::storage;
  options.prefetch = ebb::Prefetch::manual;
  auto store = ebb::Store::open(options).value();
  auto history = store.history("call");
  std::vector<std::byte> memory(job.bytes);
  ok(VELOC_Mem_protect(0, memory.data(), memory.size(), 1), "VELOC_Mem_protect");
  std::vector<double> checkpoint, stores_checkpoint, restart, restore;
  for (int turn = 0; turn < job.repeats + 1; ++turn) {
    const int first = turn * kCalls;
    const auto ours = each_us(kCalls, [&](int i) { ok(VELOC_Checkpoint("call", first + i), "VELOC_Checkpoint"); });
    ok(VELOC_Checkpoint_wait(), "VELOC_Checkpoint_wait");
    const auto bare = each_us(kCalls, [&](int i) {
      static_cast<void>(history.checkpoint(first + i, {{0, memory.data(), memory.size()}}).value());
    });
    history.wait("storage").value();
    const auto read = each_us(kCalls, [&](int i) { ok(VELOC_Restart("call", first + i), "VELOC_Restart"); });
    const auto bare_read = each_us(kCalls, [&](int i) {
      history.restore(first + i, {{0, memory.data(), memory.size()}}, {.keep = true}).value();
    });
    if (turn == 0) continue;
    checkpoint.push_back(bench::median(ours));
    stores_checkpoint.push_back(bench::median(bare));
    restart.push_back(bench::median(read));
    restore.push_back(bench::median(bare_read));
  }
  store.close().value();
  ok(VELOC_Finalize(1), "VELOC_Finalize");
  job.json.put("checkpoint_us", checkpoint).put("store_checkpoint_us", stores_checkpoint);
  job.json.put("restart_us", restart).put("store_restore_us", restore);
}

void restart_test(Job& job) {
  constexpr int kVersions = 1000;
  job.clear();
  const std::string lines = job.persistent() + "mode = async\nhost_cache_size = 0.125\n";
  std::vector<std::byte> memory(job.bytes);
  job.open(lines);
  ok(VELOC_Mem_protect(0, memory.data(), memory.size(), 1), "VELOC_Mem_protect");
  for (int version = 0; version < kVersions; ++version) ok(VELOC_Checkpoint("heat", version), "VELOC_Checkpoint");
  ok(VELOC_Finalize(1), "VELOC_Finalize");
  std::vector<double> first, again, opening;
  for (int turn = 0; turn < job.repeats; ++turn) {
    const auto test = [&] {
      if (VELOC_Restart_test("heat", 0) != kVersions - 1) throw std::runtime_error("VELOC_Restart_test is wrong");
    };
    opening.push_back(job.time([&] { job.open(lines); }));
    first.push_back(job.time(test));
    again.push_back(job.time(test));
    ok(VELOC_Finalize(1), "VELOC_Finalize");
  }
  job.json.put("init_s", opening).put("first_s", first).put("again_s", again);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  try {
    const bench::Options options(
        argc, argv,
        {{"what", ""}, {"dir", "/tmp"}, {"json", ""}, {"bytes", "4096"}, {"repeats", "5"}, {"interval-ms", "0"}});
    Job job;
    MPI_Comm_rank(MPI_COMM_WORLD, &job.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &job.count);
    job.directory = fs::path(options.text("dir"));
    job.bytes = options.number("bytes");
    job.repeats = static_cast<int>(options.number("repeats"));
    job.interval_s = static_cast<double>(options.number("interval-ms")) / 1e3;
    const std::map<std::string, std::function<void()>> all = {
        {"stencil", [&] { stencil(job); }},
        {"sync", [&] { sync_and_restart(job, "disable_persistence = true\n"); }},
        {"sync-persistent", [&] { sync_and_restart(job, job.persistent()); }},
        {"regions", [&] { regions(job); }},
        {"calls", [&] { calls(job); }},
        {"restart-test", [&] { restart_test(job); }},
    };
    const auto found = all.find(options.text("what"));
    if (found == all.end()) throw std::invalid_argument("--what is not known: " + options.text("what"));
    found->second();
    job.clear();
    if (job.rank == 0) job.json.write(options.text("json"));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "veloc: %s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return 0;
}
