// What keeping costs: checkpoints on stable storage beside the bare disk with one sync at the end, checksums on and
// off, many small ones beside one file each, and how long a store of many takes to open. All in one run, one after the
// other in one loop; each repeat in a new store.
#include <condition_variable>
#include <fcntl.h>
#include <filesystem>
#include <iterator>
#include <mutex>
#include <system_error>
#include <unistd.h>

#include "benches/common.hpp"
#include "benches/raw_io.hpp"
#include "storage/persistent_storage.hpp"
#include "store/engine.hpp"

namespace bench {
namespace {

namespace fs = std::filesystem;
using ebb::storage::Description;
using ebb::storage::ObjectId;
using ebb::storage::PersistentOptions;
using ebb::storage::PersistentStorage;

constexpr ObjectId kFirst = ObjectId{1} << 62;

[[noreturn]] void fail(const std::string& what) { throw std::system_error(errno, std::generic_category(), what); }

std::shared_ptr<const Description> describe(ObjectId id, std::uint64_t bytes) {
  Description out{"bench", static_cast<ebb::Version>(id - kFirst), {}};
  out.info.regions.push_back({0, bytes, 0});
  out.info.bytes = bytes;
  return std::make_shared<const Description>(std::move(out));
}

/// A store, its slots of memory and what it told. Thread safety: one thread drives it; mutex_ guards what it is told.
class Trial {
 public:
  Trial(const fs::path& directory, const PersistentOptions& options, std::size_t depth, std::uint64_t chunk)
      : memory_(make_buffer(depth * chunk)), chunk_(chunk), depth_(depth) {
    for (std::size_t i = 0; i < depth; ++i) free_.push_back(i);
    PersistentOptions ours = options;
    ours.directory = directory;
    const auto start = Clock::now();
    storage_ = ebb::storage::open_persistent_storage(
                   files_, clock_, ours, [this](ebb::transfer::Token slot, ebb::Result<void> how) { give(slot, how); },
                   [this](ObjectId, const ebb::Result<void>& how) { told(how); })
                   .value();
    opened_s = seconds(Clock::now() - start);
  }
  ~Trial() { storage_->stop(); }
  double opened_s = 0;

  std::vector<ebb::storage::Found> found() const { return storage_->found(); }

  void write(ObjectId id, std::uint64_t bytes) {
    storage_->begin(id, describe(id, bytes)).value();
    for (std::uint64_t at = 0; at < bytes; at += chunk_) {
      const std::size_t slot = take();
      storage_->put(slot, id, bytes, at, memory_.get() + slot * chunk_, std::min(chunk_, bytes - at)).value();
    }
    ++written_;
  }
  /// All that was written is on stable storage.
  void wait() {
    all_free();
    storage_->commit();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return kept_ == written_; });
    check_locked();
  }
  void all_free() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return free_.size() == depth_; });
    check_locked();
  }

 private:
  std::size_t take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !free_.empty(); });
    const std::size_t slot = free_.back();
    free_.pop_back();
    return slot;
  }
  void give(std::size_t slot, const ebb::Result<void>& how) {
    const std::lock_guard lock(mutex_);
    if (!how) failure_ = how.error().message;
    free_.push_back(slot);
    changed_.notify_all();
  }
  void told(const ebb::Result<void>& how) {
    const std::lock_guard lock(mutex_);
    if (!how) failure_ = how.error().message;
    ++kept_;
    changed_.notify_all();
  }
  void check_locked() const {
    if (!failure_.empty()) throw std::runtime_error(failure_);
  }

  Buffer memory_;
  const std::uint64_t chunk_;
  const std::size_t depth_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::size_t> free_;
  std::string failure_;
  std::size_t kept_ = 0, written_ = 0;
  ebb::os::PosixFiles files_;
  ebb::os::SteadyClock clock_;
  std::unique_ptr<PersistentStorage> storage_;
};

/// A directory that is gone afterwards.
class Scratch {
 public:
  explicit Scratch(const fs::path& parent) {
    std::string name = parent / "kept-rates-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) fail(name);
    path_ = name;
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(path_), fs::directory_iterator()));
  }

 private:
  fs::path path_;
};

struct Sizes {
  std::uint64_t span, size, chunk;
  std::size_t depth;
};

// Seconds of writing all.
double write_all(const fs::path& parent, const PersistentOptions& options, const Sizes& sizes) {
  const Scratch scratch(parent);
  Trial trial(scratch.path(), options, sizes.depth, sizes.chunk);
  const auto start = Clock::now();
  for (std::uint64_t i = 0; i < sizes.span / sizes.size; ++i) trial.write(kFirst + i, sizes.size);
  trial.wait();
  return seconds(Clock::now() - start);
}

ebb::Store open_store(const fs::path& directory, bool checksums, bool readonly) {
  ebb::Options options;
  options.directory = directory;
  options.device_cache = 0;
  options.host_cache = 512ull << 20;
  options.tuning.host_arena = ebb::HostArena::direct;  // all of it is there before the clock starts
  if (readonly)
    options.readonly = true;
  else
    options.durability = ebb::Durability::storage;
  ebb::options::Seams seams{std::make_shared<ebb::os::PosixFiles>(), std::make_shared<ebb::os::SteadyClock>(),
                            ebb::device::make_host_device()};
  auto setup = ebb::options::choose_setup(options, *seams.files, *seams.device, {}).value();
  setup.checksums = checksums;
  return ebb::store::Engine::store_over(ebb::store::Engine::open(std::move(seams), std::move(setup)).value());
}

// Seconds in which a program checkpoints all of it and waits until it is on stable storage.
double checkpoint_all(const fs::path& directory, bool checksums, const Sizes& sizes) {
  const Buffer memory = make_buffer(sizes.size);
  ebb::Store store = open_store(directory, checksums, false);
  const auto start = Clock::now();
  for (ebb::Version v = 0; v < static_cast<ebb::Version>(sizes.span / sizes.size); ++v) {
    store.checkpoint(v, {{0, memory.get(), sizes.size}}, {.timeout = ebb::Seconds(60)}).value();
  }
  store.wait("storage").value();
  const double taken = seconds(Clock::now() - start);
  store.close().value();
  return taken;
}

// Seconds in which a later process restores all of it, in an order that it has told. Without checksums it does not look
// at those that are there.
double restore_all(const fs::path& directory, bool checksums, const Sizes& sizes) {
  const Buffer memory = make_buffer(sizes.size);
  ebb::Store store = open_store(directory, checksums, true);
  std::vector<ebb::Version> order;
  for (ebb::Version v = 0; v < static_cast<ebb::Version>(sizes.span / sizes.size); ++v) order.push_back(v);
  const auto start = Clock::now();
  store.hint(order).value();
  for (const ebb::Version v : order) store.restore(v, {{0, memory.get(), sizes.size}}).value();
  return seconds(Clock::now() - start);
}

/// The same thing with checksums and without, in turns. What comes first is slower than what comes later, and the disk
/// drifts: each is first every other time, and neighbours are compared.
class Turns {
 public:
  template <class F>
  void take(bool checked_first, int rounds, F&& seconds_of) {
    double with = 0, without = 0;
    for (int round = 0; round < rounds; ++round) {
      for (const bool checked : {checked_first, !checked_first, !checked_first, checked_first}) {
        (checked ? with : without) += seconds_of(checked) / (2 * rounds);
      }
    }
    with_.push_back(with);
    without_.push_back(without);
    cost_.push_back(with / without - 1);
  }
  const std::vector<double>& with() const { return with_; }
  const std::vector<double>& without() const { return without_; }
  const std::vector<double>& cost() const { return cost_; }

 private:
  std::vector<double> with_, without_, cost_;
};

struct Small {
  double at_end_s = 0, each_s = 0;
  std::size_t files = 0;
};

// One wait at the end; and, for a part of them, one for each.
Small small(const fs::path& parent, const PersistentOptions& options, std::uint64_t count, std::uint64_t bytes) {
  Small out;
  {
    const Scratch scratch(parent);
    Trial trial(scratch.path(), options, 64, bytes);
    const auto start = Clock::now();
    for (std::uint64_t i = 0; i < count; ++i) trial.write(kFirst + i, bytes);
    trial.wait();
    out.at_end_s = seconds(Clock::now() - start);
    out.files = scratch.files();
  }
  const Scratch scratch(parent);
  Trial trial(scratch.path(), options, 1, bytes);
  const std::uint64_t some = std::min<std::uint64_t>(count, 500);
  const auto start = Clock::now();
  for (std::uint64_t i = 0; i < some; ++i) {
    trial.write(kFirst + i, bytes);
    trial.wait();
  }
  out.each_s = seconds(Clock::now() - start) / static_cast<double>(some);
  return out;
}

double one_file_each(const fs::path& parent, std::uint64_t count, std::uint64_t bytes) {
  const Scratch scratch(parent);
  const Buffer memory = make_buffer(bytes);
  const auto start = Clock::now();
  for (std::uint64_t i = 0; i < count; ++i) {
    const fs::path name = scratch.path() / std::to_string(i), beside = name.string() + ".new";
    const int fd = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) fail("open");
    if (::write(fd, memory.get(), bytes) != static_cast<ssize_t>(bytes)) fail("write");
    if (::fsync(fd) != 0) fail("fsync");
    ::close(fd);
    if (::rename(beside.c_str(), name.c_str()) != 0) fail("rename");
  }
  return seconds(Clock::now() - start);
}

// Seconds of opening a store of `count` records: by its index, and by reading every head.
std::pair<double, double> opening(const fs::path& parent, PersistentOptions options, std::uint64_t count) {
  const Scratch scratch(parent);
  options.synced = false;
  {
    Trial trial(scratch.path(), options, 64, 4096);
    for (std::uint64_t i = 0; i < count; ++i) trial.write(kFirst + i, 4096);
    trial.wait();
  }
  options.readonly = true;
  const auto open = [&] {
    const Trial trial(scratch.path(), options, 1, 4096);
    if (trial.found().size() != count) throw std::runtime_error("not all records were found");
    return trial.opened_s;
  };
  const double index = open();
  fs::remove(scratch.path() / "index");
  return {index, open()};
}

void run(const Options& options) {
  const fs::path dir = options.text("dir");
  Sizes sizes{options.number("span"), options.number("size"), options.number("chunk"), options.number("depth")};
  sizes.span = sizes.span / sizes.size * sizes.size;
  const std::uint64_t count = options.number("count"), bytes = options.number("bytes");
  PersistentOptions on;
  on.capacity = std::max({sizes.span, count * ebb::os::round_up(bytes), options.number("records") * 4096});
  PersistentOptions off = on;
  off.checksums = false;

  RawFile file(dir);
  const Way way = find_best(file, options.number("probe")).write.way;
  std::vector<double> bare, ratio;
  Turns writes, checkpoints, restores;
  for (std::uint64_t i = 0; i < options.number("rate-repeats"); ++i) {
    file.fresh(sizes.span);
    const double transfers = static_cast<double>(sizes.span) / file.rate(true, sizes.span, way);
    const auto start = Clock::now();
    file.sync();
    bare.push_back(transfers + seconds(Clock::now() - start));
    const bool first = i % 2 == 0;
    writes.take(first, 1, [&](bool checked) { return write_all(dir, checked ? on : off, sizes); });
    ratio.push_back(bare.back() / writes.with().back());
    checkpoints.take(first, 1, [&](bool checked) {
      const Scratch scratch(dir);
      return checkpoint_all(scratch.path(), checked, sizes);
    });
    const Scratch scratch(dir);  // the same files each time: where they lie matters more
    checkpoint_all(scratch.path(), true, sizes);
    restores.take(first, 2, [&](bool checked) { return restore_all(scratch.path(), checked, sizes); });
  }
  Json json;
  json.put("write_ratio", ratio).put("bare_s", bare);
  json.put("checksum_write_cost", writes.cost()).put("write_s", writes.with());
  json.put("write_unchecked_s", writes.without());
  json.put("checksum_checkpoint_cost", checkpoints.cost()).put("checkpoint_s", checkpoints.with());
  json.put("checkpoint_unchecked_s", checkpoints.without());
  json.put("checksum_read_cost", restores.cost()).put("restore_s", restores.with());
  json.put("restore_unchecked_s", restores.without());
  std::vector<double> at_end, each, files, one_file, small_ratio, index, scan;
  for (std::uint64_t i = 0; count > 0 && i < options.number("repeats"); ++i) {
    const Small ours = small(dir, on, count, bytes);
    at_end.push_back(ours.at_end_s);
    each.push_back(ours.each_s);
    files.push_back(static_cast<double>(ours.files));
    one_file.push_back(one_file_each(dir, count, bytes));
    small_ratio.push_back(one_file.back() / ours.at_end_s);
  }
  for (std::uint64_t i = 0; options.number("records") > 0 && i < options.number("repeats"); ++i) {
    const auto [by_index, by_scanning] = opening(dir, on, options.number("records"));
    index.push_back(by_index);
    scan.push_back(by_scanning);
  }
  json.put("small_s", at_end).put("small_waiting_for_each_s", each).put("small_files", files);
  json.put("one_file_each_s", one_file).put("small_ratio", small_ratio);
  json.put("open_with_index_s", index).put("open_by_scanning_s", scan);
  json.write(options.text("json"));
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) try {
  bench::run(bench::Options(argc, argv,
                            {{"json", ""},
                             {"dir", "/tmp"},
                             {"probe", "67108864"},
                             {"span", "2147483648"},
                             {"size", "16777216"},
                             {"chunk", "4194304"},
                             {"depth", "16"},
                             {"repeats", "5"},
                             {"rate-repeats", "5"},
                             {"count", "20000"},
                             {"bytes", "65536"},
                             {"records", "100000"}}));
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "kept_rates: %s\n", error.what());
  return 1;
}
