// Instructions of the calling thread, for calls that hit the device cache (in ordinary memory and on the double of a
// GPU) and for a planner event. tools/instructions.py runs it under callgrind, which writes one file for each row and
// round.
//
// A count has to repeat, so nothing else of the engine runs beside a counted call: there is no tier below that would be
// flushed to, the clock stands still, and the double of the GPU keeps its reporting thread and its work waiting until
// the call has returned. Nothing of the double itself is counted.
#include <array>
#include <bit>
#include <condition_variable>
#include <functional>
#include <gnu/libc-version.h>
#include <iostream>
#include <mutex>
#include <thread>
#include <valgrind/callgrind.h>

#include "benches/common.hpp"
#include "benches/planner_shot.hpp"
#include "store/engine.hpp"
#include "tests/doubles/fake_device.hpp"
#include "tests/doubles/forward_device.hpp"
#include "tests/doubles/manual_clock.hpp"

namespace {

using namespace ebb;

constexpr int kCalls = 16;  // of each row in a round
constexpr int kWarm = 1, kRounds = 3;
constexpr std::size_t kRegion = 256;  // bytes
constexpr std::uint64_t kEvents = 500;

thread_local bool counting = false;
thread_local std::uint64_t allocations = 0;  // while counting

void toggle() {
  counting = !counting;
  CALLGRIND_TOGGLE_COLLECT;
}
/// While it lives, this thread's instructions are counted; they are not while an Uncounted lives inside.
class Counted {
 public:
  Counted() { toggle(); }
  Counted(const Counted&) = delete;
  ~Counted() { toggle(); }
};
class Uncounted {
 public:
  Uncounted() : was_(counting) {
    if (was_) toggle();
  }
  Uncounted(const Uncounted&) = delete;
  ~Uncounted() {
    if (was_) toggle();
  }

 private:
  const bool was_;
};

/// A block of memory of 2^size bytes, with this in front of it.
struct alignas(std::max_align_t) Block {
  std::size_t size;
  Block* next;
};
thread_local std::array<Block*, 48> unused{};

void* take(std::size_t bytes) {
  if (counting) ++allocations;
  const auto size = static_cast<std::size_t>(std::bit_width(bytes + sizeof(Block) - 1));
  Block*& first = unused[size];
  if (first == nullptr) {
    const Uncounted pause;
    constexpr std::size_t kMany = 1 << 16;
    const std::size_t each = std::size_t{1} << size, all = std::max(each, kMany);
    auto* const memory = static_cast<std::byte*>(std::malloc(all));
    if (memory == nullptr) throw std::bad_alloc();
    for (std::size_t at = 0; at < all; at += each) first = new (memory + at) Block{size, first};
  }
  Block* const block = first;
  first = block->next;
  return block + 1;
}
void give(void* memory) noexcept {
  if (memory == nullptr) return;
  Block* const block = static_cast<Block*>(memory) - 1;
  block->next = unused[block->size];
  unused[block->size] = block;
}

void end_row(const std::string& name, std::uint64_t calls) {
  const std::string row = std::to_string(calls) + " " + std::to_string(allocations) + " " + name;
  CALLGRIND_DUMP_STATS_AT(row.c_str());
  allocations = 0;
}

void forget_row() {
  CALLGRIND_ZERO_STATS;
  allocations = 0;
}

/// The double of a GPU. Its work completes when a host waits for it, or in settle(). The engine's reporting thread,
/// which wait_any() keeps, sleeps otherwise.
class QuietGpu final : public doubles::ForwardDevice {
 public:
  explicit QuietGpu(std::shared_ptr<doubles::FakeDevice> fake) : ForwardDevice(fake), fake_(*fake) {}

  /// Before a counted call.
  void hold() {
    const std::lock_guard lock(mutex_);
    held_ = true;
  }
  /// After it: returns when all work is complete and reported.
  void settle() {
    std::unique_lock lock(mutex_);
    held_ = false;
    do {
      fake_.run();
      rung_ = true;
      changed_.notify_all();
      changed_.wait(lock, [&] { return !rung_ && waits_; });
    } while (unfinished_);
  }

  Result<void> copy(device::StreamId stream, void* to, const void* from, std::size_t bytes) override {
    const Uncounted pause;
    return inner_->copy(stream, to, from, bytes);
  }
  Result<device::EventId> create_event() override {
    const Uncounted pause;
    return inner_->create_event();
  }
  void destroy_event(device::EventId event) noexcept override {
    const Uncounted pause;
    inner_->destroy_event(event);
  }
  bool owns(const void* memory, std::size_t bytes) noexcept override {
    const Uncounted pause;
    return inner_->owns(memory, bytes);
  }
  bool capturing(device::StreamId stream) noexcept override {
    const Uncounted pause;
    return inner_->capturing(stream);
  }
  Result<void> record(device::EventId event, device::StreamId stream) override {
    const Uncounted pause;
    return inner_->record(event, stream);
  }
  Result<void> stream_wait(device::StreamId stream, device::EventId event) override {
    const Uncounted pause;
    return inner_->stream_wait(stream, event);
  }
  Result<void> synchronize() override {
    const Uncounted pause;
    fake_.run();
    return inner_->synchronize();
  }
  device::EventState query(device::EventId event) noexcept override {
    const Uncounted pause;
    return inner_->query(event);
  }
  Result<void> wait(device::EventId event) override {
    const Uncounted pause;
    fake_.run();
    return inner_->wait(event);
  }
  void discard(void* memory, std::size_t bytes) noexcept override {
    const Uncounted pause;
    inner_->discard(memory, bytes);
  }
  void wait_any(std::span<const device::EventId> events, std::chrono::nanoseconds /*at_most*/) noexcept override {
    std::unique_lock lock(mutex_);
    waits_ = true;
    unfinished_ = !events.empty();
    changed_.notify_all();
    changed_.wait(lock, [&] { return rung_ && !held_; });
    rung_ = waits_ = false;
  }
  void interrupt() noexcept override {
    const Uncounted pause;
    const std::lock_guard lock(mutex_);
    rung_ = true;
    if (!held_) changed_.notify_all();
  }

 private:
  doubles::FakeDevice& fake_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false, rung_ = false, waits_ = false, unfinished_ = false;
};

/// A store of one kind of memory, and the calls on checkpoints of so many regions. `gpu`: null for ordinary memory.
class Calls {
 public:
  Calls(store::Engine& engine, Store& store, device::Device& device, QuietGpu* gpu, std::size_t regions)
      : engine_(engine),
        store_(store),
        device_(device),
        gpu_(gpu),
        bytes_(regions * kRegion),
        field_(device.allocate(bytes_).value()) {
    for (std::size_t i = 0; i < regions; ++i) {
      sources_.push_back({static_cast<std::uint32_t>(i), field_ + i * kRegion, kRegion});
      targets_.push_back({static_cast<std::uint32_t>(i), field_ + i * kRegion, kRegion});
    }
    where_ =
        std::string(gpu ? "gpu" : "memory") + ", " + std::to_string(regions) + (regions > 1 ? " regions" : " region");
  }
  Calls(const Calls&) = delete;
  ~Calls() { device_.free(field_, bytes_); }

  void run() {
    for (int round = -kWarm; round < kRounds; ++round) {
      counted_ = round >= 0;
      copies("", {});
      in_place("", {});
      if (gpu_ == nullptr) continue;
      const StreamHandle stream = doubles::FakeStreams::kFirstStream;
      copies(" in stream order", stream);
      in_place(" in stream order", stream);
    }
  }

 private:
  void copies(const std::string& how, std::optional<StreamHandle> stream) {
    CheckpointOptions checkpoint;
    checkpoint.stream = stream;
    RestoreOptions restore;
    restore.stream = stream;
    std::vector<Future> written(kCalls);
    if (!stream) row("hint", [&](int i) { store_.hint({next_ + kCalls - 1 - i}).value(); });
    row("checkpoint" + how, [&](int i) {
      written[static_cast<std::size_t>(i)] = store_.checkpoint(next_ + i, sources_, checkpoint).value();
    });
    if (!stream) row("done", [&](int i) { check(written[static_cast<std::size_t>(i)].done("device")); });
    written.clear();
    row("restore" + how, [&](int i) { store_.restore(next_ + kCalls - 1 - i, targets_, restore).value(); });
    next_ += kCalls;
  }
  void in_place(const std::string& how, std::optional<StreamHandle> stream) {
    const HandBack back{.stream = stream};
    row("reserve and commit" + how, [&](int i) { store_.reserve(next_ + i, sources_).value().commit(back).value(); });
    row("borrow and release" + how,
        [&](int i) { store_.borrow(next_ + kCalls - 1 - i).value().release(false, back).value(); });
    next_ += kCalls;
  }
  template <class Call>
  void row(const std::string& name, const Call& call) {
    for (int i = 0; i < kCalls; ++i) {
      if (gpu_ != nullptr) gpu_->hold();
      {
        const Counted counted;
        call(i);
      }
      if (gpu_ != nullptr) gpu_->settle();
      await_pump();
    }
    if (counted_)
      end_row(name + ", " + where_, kCalls);
    else
      forget_row();
  }
  // Until the pump thread has come round once more, and sleeps.
  void await_pump() {
    const std::uint64_t before = engine_.pump_rounds();
    engine_.poke();
    while (engine_.pump_rounds() == before) std::this_thread::yield();
  }
  static void check(bool holds) {
    if (!holds) throw std::logic_error("a checkpoint in the device cache is not done");
  }

  store::Engine& engine_;
  Store& store_;
  device::Device& device_;
  QuietGpu* const gpu_;
  const std::size_t bytes_;
  std::byte* const field_;
  std::vector<Source> sources_;
  std::vector<Target> targets_;
  std::string where_;
  bool counted_ = false;
  Version next_ = 0;
};

options::EngineSetup cache_of(std::size_t bytes) {
  options::EngineSetup setup;
  setup.machine.tiers.push_back({"device", planner::Medium::device, bytes, 4096});
  setup.machine.tiers.back().grain = planner::kGrain;
  planner::connect(setup.machine, 4);
  setup.io = Io::threads;
  setup.device_arena = DeviceArena::direct;
  return setup;
}

void count_calls(bool on_gpu) {
  std::shared_ptr<QuietGpu> gpu;
  if (on_gpu) {
    gpu = std::make_shared<QuietGpu>(
        std::make_shared<doubles::FakeDevice>(doubles::FakeDevice::Options{.discrete = true, .automatic = false}));
  }
  options::Seams seams;
  seams.files = std::make_shared<os::PosixFiles>();
  seams.clock = std::make_shared<doubles::ManualClock>();
  seams.device = gpu ? std::shared_ptr<device::Device>(gpu) : device::make_host_device();
  const auto engine = store::Engine::open(seams, cache_of(4 << 20)).value();
  Store store = store::Engine::store_over(engine);
  const device::StreamId stream = seams.device->host_memory() ? 0 : seams.device->create_stream().value();
  for (const std::size_t regions : {1, 8}) Calls(*engine, store, *seams.device, gpu.get(), regions).run();
  if (gpu) gpu->destroy_stream(stream);
  store.close().value();
}

/// For one of so many protected regions. A row of many regions counts more than one of few only by a logarithm.
void count_protected(std::size_t regions) {
  constexpr std::size_t kZone = 4096;
  options::Seams seams;
  seams.files = std::make_shared<os::PosixFiles>();
  seams.clock = std::make_shared<doubles::ManualClock>();
  seams.device = device::make_host_device();
  const auto engine = store::Engine::open(seams, cache_of(32 << 20)).value();
  Store store = store::Engine::store_over(engine);
  auto* const field = static_cast<std::byte*>(std::aligned_alloc(kZone, regions * 2 * kZone));
  std::vector<Target> targets;
  for (std::size_t i = 0; i < regions; ++i)
    targets.push_back({static_cast<std::uint32_t>(i), new (field + i * 2 * kZone) std::byte[kZone]{}, kZone});
  const auto row = [&](const std::string& name, const auto& call) {
    for (int round = -kWarm; round < kRounds; ++round) {
      {
        const Counted counted;
        call();
      }
      if (round < 0)
        forget_row();
      else
        end_row(name + ", one of " + std::to_string(regions) + " regions", regions);
    }
  };
  store.protect(targets, {.zone = kZone, .track = Track::declared}).value();
  row("touch", [&] {
    for (const Target& one : targets) store.touch(one.id, 0, one.bytes).value();
  });
  store.snapshot(0).value().wait("ephemeral").value();
  row("restore in place", [&] { store.restore(0, targets, {.keep = true}).value(); });
  store.close().value();
  std::free(field);
}

/// Events after the moment at which so many replicas live on the fastest tiers.
void count_planner_events(const std::string& row, std::size_t replicas, planner::TierIndex tiers,
                          sim::Simulation simulation) {
  std::uint64_t events = 0;
  simulation.feed = [&](planner::Planner& planner, const planner::Event& event, planner::Output& output) {
    if (events == 0 && bench::replicas_of(planner, tiers) < replicas) return planner.on(event, output);
    if (events++ == 0) {
      CALLGRIND_START_INSTRUMENTATION;
      forget_row();
    }
    const Counted counted;
    planner.on(event, output);
  };
  while (events < kEvents) {
    if (!simulation.step()) throw std::logic_error("a shot has so few events: " + std::to_string(events));
  }
  end_row("planner event, " + row + std::to_string(replicas) + " replicas", events);
  CALLGRIND_STOP_INSTRUMENTATION;
}

}  // namespace

void* operator new(std::size_t bytes) { return take(bytes); }
void operator delete(void* memory) noexcept { give(memory); }
void operator delete(void* memory, std::size_t) noexcept { give(memory); }

int main() try {
  if (!RUNNING_ON_VALGRIND) throw std::logic_error("run tools/instructions.py, which runs this under callgrind");
  for (const std::size_t n : {100, 10'000})
    count_planner_events("", n, 3, bench::planner_shot(n, 1 << 20, sim::Shot::Order::reverse));
  for (const std::size_t n : {10'000, 100'000})
    count_planner_events("full caches, ", n, 2, bench::small_checkpoints(n, 2 * n));
  CALLGRIND_START_INSTRUMENTATION;
  for (const bool gpu : {false, true}) count_calls(gpu);
  for (const std::size_t regions : {100, 3'000}) count_protected(regions);
  bench::Json().put("compiler", __VERSION__).put("libc", gnu_get_libc_version()).write("");
  return 0;
} catch (const std::exception& error) {
  std::cerr << "instructions: " << error.what() << "\n";
  return 1;
}
