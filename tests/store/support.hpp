#pragma once
// A small store over real machinery or over doubles, and bytes that can be told apart.
#include <cstring>
#include <gtest/gtest.h>
#include <memory>
#include <thread>
#include <vector>

#include "device/cuda.hpp"
#include "planner/topology.hpp"
#include "store/engine.hpp"
#include "tests/doubles/fake_device.hpp"
#include "tests/doubles/faulty_files.hpp"
#include "tests/doubles/manual_clock.hpp"

namespace ebb::store::testing_support {

inline constexpr std::size_t kKiB = 1024;

/// Bytes that tell version and place.
inline std::vector<std::byte> bytes_of(Version version, std::size_t size) {
  std::vector<std::byte> bytes(size);
  std::uint64_t state = static_cast<std::uint64_t>(version) * 0x9E3779B97F4A7C15u + 1;
  for (std::size_t i = 0; i < size; i += 8) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    std::memcpy(bytes.data() + i, &state, std::min<std::size_t>(8, size - i));
  }
  return bytes;
}

enum class Backend { uring, threads, fake, gpu, cuda };  // gpu: a double of one; cuda: a real one

struct Sizes {
  std::uint64_t device = 256 * kKiB, host = 512 * kKiB, disk = 8192 * kKiB, chunk = 16 * kKiB;
};

/// Seams, engine and store of one test. Doubles are there for every backend but `device`, which `fake` and `gpu` have.
class Rig {
 public:
  explicit Rig(Backend backend = Backend::uring, Sizes sizes = {}, std::uint64_t seed = 1)
      : files_(std::make_shared<doubles::FaultyFiles>(posix_, seed)) {
    setup_.io = backend == Backend::threads ? Io::threads : Io::automatic;
    setup_.directory = ::testing::TempDir();
    os::FileSystem found;
    if (posix_.describe(setup_.directory, found) && found.in_memory) {  // the tests' own directory may be a tmpfs
      found.in_memory = false;
      files_->pretend(found);
      setup_.direct_io = false;
    }
    auto& tiers = setup_.machine.tiers;
    if (sizes.device > 0) tiers.push_back({"device", planner::Medium::device, sizes.device, 4096});
    if (sizes.host > 0) tiers.push_back({"host", planner::Medium::host, sizes.host, 4096});
    if (sizes.disk > 0) tiers.push_back({"local", planner::Medium::file, sizes.disk, 4096});
    for (auto& tier : tiers) tier.grain = tier.medium == planner::Medium::file ? 0 : planner::kGrain;
    planner::connect(setup_.machine, 4);
    for (auto& link : setup_.machine.links) link.chunk = sizes.chunk;
    setup_.machine.ring_slot = sizes.chunk;
    seams_.files = files_;
    seams_.clock = std::make_shared<os::SteadyClock>();
    if (backend == Backend::fake || backend == Backend::gpu) {
      device_ = std::make_shared<doubles::FakeDevice>(
          doubles::FakeDevice::Options{.seed = seed, .discrete = backend == Backend::gpu});
      seams_.device = device_;
      // Many small pieces, so that copies meet borders and memory that is not there yet.
      planner::ProvisionSpec& provision = setup_.provision.emplace();
      provision.piece = provision.largest_piece = 4096;
      provision.touchers = 1;
      provision.lead = 4 * 4096;
      // A thread that pins may be late on a busy machine.
      provision.pin_deadline = planner::Time{60} * 1'000'000'000;
      setup_.map_piece = 64 * kKiB;
    } else if (backend == Backend::cuda) {
      seams_.device = device::make_cuda_device(0).value();
    } else {
      seams_.device = device::make_host_device();
    }
  }
  Rig(const Rig&) = delete;
  ~Rig() {
    store_.reset();
    engine_.reset();
    if (device_) {
      EXPECT_EQ(device_->violations(), std::vector<std::string>{});
    }
  }

  options::EngineSetup& setup() { return setup_; }
  options::Seams& seams() { return seams_; }
  doubles::FaultyFiles& files() { return *files_; }
  doubles::FakeDevice& device() { return *device_; }
  Engine& engine() { return store(), *engine_; }

  Store& store() {
    if (!store_) {
      engine_ = Engine::open(seams_, setup_).value();
      store_.emplace(Engine::store_over(engine_));
    }
    return *store_;
  }
  bool host_memory() const { return seams_.device->host_memory(); }
  /// Bytes into and out of memory of the store's device, wherever it is.
  void put(void* to, const void* from, std::size_t bytes) { move(to, from, bytes); }
  std::vector<std::byte> get(const void* from, std::size_t bytes) {
    std::vector<std::byte> found(bytes);
    move(found.data(), from, bytes);
    return found;
  }
  /// Lets go of the store (which closes it) before the rig ends.
  void end() { store_.reset(), engine_.reset(); }

 private:
  void move(void* to, const void* from, std::size_t bytes) {
    device::Device& on = *seams_.device;
    if (on.host_memory()) return static_cast<void>(std::memcpy(to, from, bytes));
    const auto stream = on.create_stream().value();
    on.copy(stream, to, from, bytes).value();
    on.destroy_stream(stream);  // waits for it
  }

  os::PosixFiles posix_;
  std::shared_ptr<doubles::FaultyFiles> files_;
  std::shared_ptr<doubles::FakeDevice> device_;
  options::Seams seams_;
  options::EngineSetup setup_;
  std::shared_ptr<Engine> engine_;
  std::optional<Store> store_;
};

/// Writes version `version` of `size` bytes and overwrites the source at once: it was the application's again.
inline Result<Future> write(History& history, Version version, std::size_t size, CheckpointOptions options = {}) {
  auto bytes = bytes_of(version, size);
  auto result = history.checkpoint(version, {{0, bytes.data(), bytes.size()}}, options);
  std::fill(bytes.begin(), bytes.end(), std::byte{0xAA});
  return result;
}

/// Restores it and compares every byte.
inline void expect_restored(History& history, Version version, std::size_t size, RestoreOptions options = {}) {
  std::vector<std::byte> bytes(size, std::byte{0x55});
  const auto result = history.restore(version, {{0, bytes.data(), bytes.size()}}, options);
  ASSERT_TRUE(result) << "version " << version << ": " << result.error().message;
  ASSERT_TRUE(bytes == bytes_of(version, size)) << "version " << version << " came back with other bytes";
}

/// Until the store knows of a version that another thread is writing: that thread's call has begun, its time limit too.
inline void await_known(History& history, Version version) {
  while (!history.info(version)) std::this_thread::yield();
}

inline Errc code_of(const Result<void>& result) { return result ? Errc::ok : result.error().code; }
template <class T>
Errc code_of(const Result<T>& result) {
  return result ? Errc::ok : result.error().code;
}

}  // namespace ebb::store::testing_support
