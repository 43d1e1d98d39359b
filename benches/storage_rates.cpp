#include "benches/storage_rates.hpp"

#include <condition_variable>
#include <mutex>

#include "benches/raw_io.hpp"
#include "os/files.hpp"
#include "storage/scratch/scratch_file.hpp"

namespace bench {
namespace {

/// Thread safety: `take` from one thread, `give` from any. 1. At most `depth` taken and not given back.
class Slots {
 public:
  explicit Slots(std::size_t depth) {
    for (std::size_t i = 0; i < depth; ++i) free_.push_back(i);
  }
  std::size_t take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !free_.empty(); });
    const std::size_t slot = free_.back();
    free_.pop_back();
    return slot;
  }
  void give(std::size_t slot) {
    const std::lock_guard lock(mutex_);
    free_.push_back(slot);
    changed_.notify_all();  // under the lock: whoever waits for all may destroy this at once
  }
  void wait_all(std::size_t depth) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return free_.size() == depth; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::size_t> free_;
};

struct Plan {
  std::uint64_t span, size, chunk;
  std::size_t depth;
  ebb::transfer::FileEngineOptions engine{};
};

struct Rates {
  double write = 0, read = 0;  // bytes per second
};

Rates ours(const std::string& directory, const Plan& plan, std::byte* memory) {
  Slots slots(plan.depth);
  std::mutex mutex;
  std::string failure;
  const auto done = [&](ebb::transfer::Token token, ebb::Result<void> result) {
    if (!result) {
      const std::lock_guard lock(mutex);
      failure = result.error().message;
    }
    slots.give(token);
  };
  ebb::os::PosixFiles files;
  ebb::storage::ScratchOptions options;
  options.directory = directory;
  options.capacity = plan.span;
  options.engine = plan.engine;
  auto storage = ebb::storage::open_scratch_file(files, options, done).value();
  Rates rates;
  for (const bool write : {true, false}) {
    const auto start = Clock::now();
    for (std::uint64_t object = 0; object < plan.span / plan.size; ++object) {
      for (std::uint64_t at = 0; at < plan.size; at += plan.chunk) {
        const std::size_t slot = slots.take();
        const std::size_t bytes = std::min(plan.chunk, plan.size - at);
        std::byte* part = memory + slot * plan.chunk;
        auto asked = write ? storage->put(slot, object, plan.size, at, part, bytes)
                           : storage->get(slot, object, at, part, bytes);
        std::move(asked).value();
      }
    }
    slots.wait_all(plan.depth);
    (write ? rates.write : rates.read) = static_cast<double>(plan.span) / seconds(Clock::now() - start);
  }
  storage->stop();
  if (!failure.empty()) throw std::runtime_error(failure);
  return rates;
}

}  // namespace

Json storage_rates(const Options& options, const Allocate& allocate) {
  Plan plan{options.number("span"), options.number("size"), options.number("chunk"), options.number("depth")};
  plan.span = plan.span / plan.size * plan.size;
  using Kind = ebb::transfer::FileEngineOptions::Kind;
  const std::string io = options.text("io");
  plan.engine.kind = io == "uring" ? Kind::uring : io == "threads" ? Kind::threads : Kind::automatic;
  if (options.number("threads") > 0) plan.engine.threads = static_cast<unsigned>(options.number("threads"));
  if (options.number("entries") > 0) plan.engine.entries = static_cast<unsigned>(options.number("entries"));
  const Memory memory = allocate(plan.depth * plan.chunk);
  RawFile file(options.text("dir"));
  const BestRates best = find_best(file, options.number("probe"), plan.depth * plan.chunk);
  Way wide_write = best.write.way, wide_read = best.read.way;
  wide_write.memory = wide_read.memory = plan.depth * plan.chunk;
  std::vector<double> bare_write, bare_read, bare_write_wide, bare_read_wide, our_write, our_read, write_ratio,
      read_ratio;
  for (std::uint64_t i = 0; i < options.number("repeats"); ++i) {
    file.fresh(plan.span);
    bare_write.push_back(file.rate(true, plan.span, best.write.way));
    bare_read.push_back(file.rate(false, plan.span, best.read.way));
    file.fresh(plan.span);
    bare_write_wide.push_back(file.rate(true, plan.span, wide_write));
    bare_read_wide.push_back(file.rate(false, plan.span, wide_read));
    const Rates rates = ours(options.text("dir"), plan, memory.get());
    our_write.push_back(rates.write);
    our_read.push_back(rates.read);
    write_ratio.push_back(rates.write / bare_write.back());
    read_ratio.push_back(rates.read / bare_read.back());
  }
  Json json;
  json.put("write_ratio", write_ratio).put("read_ratio", read_ratio);
  json.put("our_write_bytes_per_s", our_write).put("bare_write_bytes_per_s", bare_write);
  json.put("our_read_bytes_per_s", our_read).put("bare_read_bytes_per_s", bare_read);
  json.put("bare_write_wide_bytes_per_s", bare_write_wide).put("bare_read_wide_bytes_per_s", bare_read_wide);
  json.put("bare_write_engine", best.write.way.uring ? "io_uring" : "threads");
  json.put("bare_write_depth", best.write.way.depth);
  json.put("bare_write_request", static_cast<double>(best.write.way.request));
  json.put("bare_write_memory", static_cast<double>(best.write.way.depth * best.write.way.part()));
  json.put("bare_read_engine", best.read.way.uring ? "io_uring" : "threads");
  json.put("bare_read_depth", best.read.way.depth);
  json.put("bare_read_request", static_cast<double>(best.read.way.request));
  json.put("bare_read_memory", static_cast<double>(best.read.way.depth * best.read.way.part()));
  return json;
}

}  // namespace bench
