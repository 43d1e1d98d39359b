// What a node's pool saves processes that write checkpoints through files of a store, as in figure 2 of the paper
// (wag-dbi, sec. II): one mix, one pool, by plain files with and without fsync and by create_file. Times of each round
// in milliseconds, as JSON. t1: the first process begins; t2: the last has closed its file; t3: all is durable. The
// first round is a figure of its own, and the rounds in which the pool's memory is touched are none. benches/pool.py
// runs it.
#include <array>
#include <atomic>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <numeric>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "benches/checkpoint_mix.hpp"
#include "benches/common.hpp"
#include "ebbtide/store.hpp"

namespace {

namespace fs = std::filesystem;
constexpr std::size_t kMost = 64;  // processes
constexpr int kWarm = 3;           // rounds in which a pool that holds it all is touched

double now_ms() { return std::chrono::duration<double, std::milli>(bench::Clock::now().time_since_epoch()).count(); }

/// Of this thread.
double processor_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

/// What the processes of a run tell each other.
struct Shared {
  std::atomic<int> at{0}, arrived{0}, failed{0};
  std::array<double, kMost> begin{}, end{}, durable{}, memory{}, processor{};
};

struct Times {
  std::vector<double> blocked, durable;  // t2 - t1, t3 - t1
  std::vector<double> processor;         // of the threads that write, on average
  double files = 0;                      // in the store, after three rounds
  double memory = 0;  // private bytes of all processes beyond those before they opened anything, the most
};

/// A process's way of writing: each call is one round's.
struct Writer {
  std::function<void(int round, const std::vector<std::size_t>& sizes, const std::byte* image)> write;
  std::function<void(int round)> settle;  // until it is durable
  std::function<void(int round)> forget = [](int) {};
};

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what + ": " + std::strerror(errno));
}

double private_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return std::stod(line.substr(8)) * 1024;
  }
  return 0;
}

/// What each process does: so many rounds of a mix, and before each a wait of so many milliseconds, as for a GPU. With
/// a wait, nothing else waits until a round is durable.
struct Work {
  int processes = 0, rounds = 0;
  std::string mix;
  double compute_ms = 0;
};

void work(Shared& shared, std::size_t me, const Work& what, const std::function<Writer(std::size_t)>& make) {
  std::vector<std::byte> image(std::size_t{9} << 20, static_cast<std::byte>(me + 1));
  const auto sizes = bench::write_sizes(what.mix, static_cast<unsigned>(me));
  const double before = private_bytes();
  const Writer writer = make(me);
  int step = 0;
  const auto meet = [&] {
    ++step;
    if (shared.arrived.fetch_add(1) + 1 == (what.processes + 1) * step) shared.at = step;
    while (shared.at < step) {
      if (shared.failed) ::_exit(1);
      ::usleep(100);
    }
  };
  for (int round = 0; round < what.rounds; ++round) {
    ::usleep(static_cast<useconds_t>(what.compute_ms * 1000));
    meet();
    shared.begin[me] = now_ms();
    const double worked = processor_ms();
    writer.write(round, sizes, image.data());
    shared.processor[me] = processor_ms() - worked;
    shared.end[me] = now_ms();
    if (what.compute_ms == 0) writer.settle(round);
    shared.durable[me] = now_ms();
    meet();
    shared.memory[me] = std::max(shared.memory[me], private_bytes() - before);
    meet();  // the parent has looked
    writer.forget(round);
  }
}

double files_in(const fs::path& directory) {
  double count = 0;
  if (fs::exists(directory)) {
    for (const auto& entry : fs::directory_iterator(directory))
      count += entry.path().filename().string().starts_with("segment-");
  }
  return count;
}

Times run(const Work& what, const std::function<Writer(std::size_t)>& make, const fs::path& store = {}) {
  const int processes = what.processes;
  void* const memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  require(memory != MAP_FAILED, "mmap");
  Shared& shared = *new (memory) Shared();
  for (std::size_t me = 0; me < static_cast<std::size_t>(processes); ++me) {
    const pid_t child = ::fork();
    require(child >= 0, "fork");
    if (child > 0) continue;
    try {
      work(shared, me, what, make);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "process %zu: %s\n", me, error.what());
      shared.failed = 1;
      ::_exit(1);
    }
    ::_exit(0);
  }
  Times times;
  int step = 0;
  const auto meet = [&] {  // the parent is one of those who meet
    ++step;
    if (shared.arrived.fetch_add(1) + 1 == (processes + 1) * step) shared.at = step;
    while (shared.at < step && !shared.failed) ::usleep(100);
  };
  const auto last = static_cast<std::ptrdiff_t>(processes);
  for (int round = 0; round < what.rounds && !shared.failed; ++round) {
    meet();
    meet();
    const double t1 = *std::min_element(shared.begin.begin(), shared.begin.begin() + last);
    times.blocked.push_back(*std::max_element(shared.end.begin(), shared.end.begin() + last) - t1);
    times.processor.push_back(std::accumulate(shared.processor.begin(), shared.processor.begin() + last, 0.0) /
                              processes);
    times.durable.push_back(*std::max_element(shared.durable.begin(), shared.durable.begin() + last) - t1);
    if (round == kWarm - 1) times.files = files_in(store);
    meet();
  }
  int status = 0, bad = 0;
  while (::wait(&status) > 0) bad |= status;
  for (std::ptrdiff_t me = 0; me < last; ++me) times.memory += shared.memory[static_cast<std::size_t>(me)];
  ::munmap(memory, sizeof(Shared));
  if (bad != 0) throw std::runtime_error("a process failed");
  return times;
}

// --- the ways --------------------------------------------------------------------------------------------------------

Writer plain_files(const fs::path& directory, std::size_t me, bool sync) {
  const auto path = [=](int round) { return directory / (std::to_string(me) + "." + std::to_string(round)); };
  Writer writer;
  writer.write = [=](int round, const std::vector<std::size_t>& sizes, const std::byte* image) {
    const int fd = ::open(path(round).c_str(), O_WRONLY | O_CREAT | O_EXCL, 0644);
    require(fd >= 0, path(round).string());
    for (const std::size_t size : sizes) require(::write(fd, image, size) == static_cast<ssize_t>(size), "write");
    require(!sync || ::fsync(fd) == 0, "fsync");
    require(::close(fd) == 0, "close");
  };
  writer.settle = [=](int round) {
    const int fd = ::open(path(round).c_str(), O_RDONLY);
    require(::fsync(fd) == 0, "fsync");
    ::close(fd);
  };
  writer.forget = [=](int round) { fs::remove(path(round)); };
  return writer;
}

/// Copies into shared memory of the whole size: no store can be faster.
Writer bare_copies(std::byte* memory, std::size_t share, std::size_t me) {
  Writer writer;
  writer.write = [=](int, const std::vector<std::size_t>& sizes, const std::byte* image) {
    std::byte* to = memory + me * share;
    for (const std::size_t size : sizes) {
      std::memcpy(to, image, size);
      to += size;
    }
  };
  writer.settle = [](int) {};
  return writer;
}

/// A node's pool, and who shares it.
struct Pool {
  fs::path directory;
  int processes = 0;
  std::uint64_t bytes = 0, chunk = 0;
  bool overflow = false;  // through the page cache
};

ebb::Store open_store(const Pool& pool, std::size_t me) {
  ::setenv("EBBTIDE_RANK", std::to_string(me).c_str(), 1);
  ::setenv("LOCAL_WORLD_SIZE", std::to_string(pool.processes).c_str(), 1);
  ::setenv("EBBTIDE_JOB", ("bench-" + std::to_string(::getppid())).c_str(), 1);
  ebb::Options options;
  options.device = "cpu";
  options.directory = pool.directory;
  options.device_cache = 0;
  options.disk = std::uint64_t{8} << 30;
  options.durability = ebb::Durability::node;
  options.node_pool = pool.bytes;
  options.node_overflow = pool.overflow ? ebb::NodeOverflow::page_cache : ebb::NodeOverflow::wait;
  options.tuning.node_chunk = pool.chunk;
  return ebb::Store::open(options).value();
}

Writer store_files(const Pool& pool, std::size_t me) {
  struct State {
    ebb::Store store;
    std::optional<ebb::File> file{};
  };
  const auto state = std::make_shared<State>(State{open_store(pool, me)});
  Writer writer;
  writer.write = [state](int round, const std::vector<std::size_t>& sizes, const std::byte* image) {
    state->file = state->store.create_file("image", round).value();
    for (const std::size_t size : sizes) state->file->write({image, size}).value();
    state->file->close().value();
    state->file->wait("node").value();
  };
  writer.settle = [state](int) { state->file->wait("storage").value(); };
  return writer;
}

/// A restart: each process reads its first three files.
Writer store_reads(const Pool& pool, std::size_t me) {
  const auto store = std::make_shared<ebb::Store>(open_store(pool, me));
  const auto buffer = std::make_shared<std::vector<std::byte>>(std::size_t{48} << 20);
  Writer reader;
  reader.write = [=](int round, const std::vector<std::size_t>& sizes, const std::byte*) {
    std::uint64_t expected = 0;
    for (const std::size_t size : sizes) expected += size;
    auto file = store->open_file("image", round).value();
    const std::uint64_t got = file.read(*buffer).value();
    if (got != expected || (*buffer)[got - 1] != static_cast<std::byte>(me + 1))
      throw std::runtime_error("wrong bytes");
  };
  reader.settle = [](int) {};
  return reader;
}

/// As many bytes in one file past the page cache, by one process: what the disk can do. Milliseconds.
double bare_file(const fs::path& path, std::uint64_t bytes, bool reads) {
  constexpr std::size_t kAtOnce = 4 << 20;
  void* memory = nullptr;
  require(::posix_memalign(&memory, 4096, kAtOnce) == 0, "memory");
  std::memset(memory, 1, kAtOnce);
  const int fd = ::open(path.c_str(), (reads ? O_RDONLY : O_RDWR | O_CREAT) | O_DIRECT, 0644);
  require(fd >= 0, path.string());
  if (!reads) require(::posix_fallocate(fd, 0, static_cast<off_t>(bytes)) == 0, "posix_fallocate");
  const double begin = now_ms();
  for (std::uint64_t at = 0; at < bytes; at += kAtOnce) {
    const auto offset = static_cast<off_t>(at);
    const ssize_t done = reads ? ::pread(fd, memory, kAtOnce, offset) : ::pwrite(fd, memory, kAtOnce, offset);
    require(done > 0, "a bare transfer");
  }
  if (!reads) require(::fdatasync(fd) == 0, "fdatasync");
  const double took = now_ms() - begin;
  ::close(fd);
  std::free(memory);
  return took;
}

void put(bench::Json& json, const std::string& name, const Times& times) {
  const auto later = [](const std::vector<double>& all) { return std::vector<double>(all.begin() + kWarm, all.end()); };
  json.put(name + "_first_ms", times.blocked.front());
  json.put(name + "_blocked_ms", later(times.blocked));
  json.put(name + "_durable_ms", later(times.durable));
  json.put(name + "_processor_ms", later(times.processor));
}

}  // namespace

int main(int argc, char** argv) try {
  const bench::Options options(argc, argv,
                               {{"mix", "LU.C.64"},
                                {"processes", "8"},
                                {"rounds", "8"},
                                {"pool", "67108864"},
                                {"chunk", "4194304"},
                                {"overflow", "page cache"},
                                {"dir", "."},
                                {"only", "all"},
                                {"compute", "0"},
                                {"json", ""}});
  const auto processes = static_cast<int>(options.number("processes"));
  const auto rounds = static_cast<int>(options.number("rounds"));
  const std::string& mix = options.text("mix");
  const fs::path directory = options.text("dir"), files = directory / "files",
                 stored = directory / ("store-" + std::to_string(::getpid()));
  const Pool pool{stored, processes, options.number("pool"), options.number("chunk"),
                  options.text("overflow") == "page cache"};
  fs::create_directories(files);
  std::uint64_t total = 0, share = 0;
  for (int me = 0; me < processes; ++me) {
    std::uint64_t bytes = 0;
    for (const std::size_t size : bench::write_sizes(mix, static_cast<unsigned>(me))) bytes += size;
    total += bytes;
    share = std::max(share, (bytes + 4095) / 4096 * 4096);
  }
  const Work what{processes, rounds, mix, static_cast<double>(options.number("compute"))};
  bench::Json json;
  json.put("bytes", static_cast<double>(total));
  const bool all = options.text("only") == "all";
  if (all) {
    std::vector<double> written, read;
    for (int round = 0; round < rounds - kWarm; ++round) {
      const std::uint64_t whole = total / (4 << 20) * (4 << 20);
      const double scale = static_cast<double>(total) / static_cast<double>(whole);
      written.push_back(bare_file(files / "bare", whole, false) * scale);
      read.push_back(bare_file(files / "bare", whole, true) * scale);
      fs::remove(files / "bare");
    }
    json.put("bare_write_ms", written).put("bare_read_ms", read);
    put(json, "fsync", run(what, [&](std::size_t me) { return plain_files(files, me, true); }));
    put(json, "buffered", run(what, [&](std::size_t me) { return plain_files(files, me, false); }));
  }
  if (all || options.text("only") == "buffer") {
    void* const memory = ::mmap(nullptr, share * static_cast<std::size_t>(processes), PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    require(memory != MAP_FAILED, "mmap");
    put(json, "copy",
        run(what, [&](std::size_t me) { return bare_copies(static_cast<std::byte*>(memory), share, me); }));
    ::munmap(memory, share * static_cast<std::size_t>(processes));
  }
  if (options.text("only") == "slow-down") {
    put(json, "fsync", run(what, [&](std::size_t me) { return plain_files(files, me, true); }));
  }
  const Times ours = run(what, [&](std::size_t me) { return store_files(pool, me); }, stored);
  put(json, "ours", ours);
  json.put("private_bytes", ours.memory);
  json.put("segments_of_three", ours.files);
  if (all) {
    const Times restart = run({processes, kWarm, mix}, [&](std::size_t me) { return store_reads(pool, me); });
    json.put("restart_ms", restart.blocked);
  }
  json.write(options.text("json"));
  std::error_code ignored;  // the agent may be closing the store
  fs::remove_all(files, ignored), fs::remove_all(stored, ignored);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "pool: %s\n", error.what());
  return 1;
}
