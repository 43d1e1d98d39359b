// Snapshots of arrays on a GPU: a double of one, and a real one.
#include <condition_variable>
#include <malloc.h>
#include <random>

#include "tests/doubles/forward_device.hpp"
#include "tests/os/few_threads.hpp"
#include "tests/snapshots/support.hpp"

namespace ebb::snapshots {
namespace {

using namespace testing_support;

constexpr std::size_t kZone = 4 * kKiB;

/// A store on a GPU, with arrays there, and what they have on the host.
class OnDevice {
 public:
  explicit OnDevice(Backend backend, Sizes sizes = {.device = 4 * kMiB, .host = 16 * kMiB, .disk = 0},
                    std::uint64_t seed = 1)
      : rig_(backend, sizes, seed), store_(rig_.store()), device_(*rig_.seams().device) {
    stream_ = device_.create_stream().value();
  }
  ~OnDevice() {
    rig_.end();
    device_.destroy_stream(stream_);
    for (const auto& [memory, bytes] : memory_) device_.free(memory, bytes);
  }

  Rig& rig() { return rig_; }
  Store& store() { return store_; }
  device::StreamId stream() const { return stream_; }
  std::byte* array(const std::vector<std::byte>& bytes) {
    std::byte* const there = device_.allocate(bytes.size()).value();
    memory_.emplace_back(there, bytes.size());
    rig_.put(there, bytes.data(), bytes.size());
    return there;
  }
  /// As a program's kernel: in stream order. `from` stays until the stream has passed it.
  void write(std::byte* to, const std::vector<std::byte>& from, std::optional<device::StreamId> stream = {}) {
    device_.copy(stream.value_or(stream_), to, from.data(), from.size()).value();
  }
  void finish() { device_.synchronize().value(); }
  Snapshot take(Version version, SnapshotOptions options = {}) {
    options.stream = stream_;
    auto taken = store_.snapshot(version, options);
    if (!taken) throw std::runtime_error(taken.error().message);
    return *taken;
  }

 private:
  Rig rig_;
  Store& store_;
  device::Device& device_;
  device::StreamId stream_ = 0;
  std::vector<std::pair<std::byte*, std::size_t>> memory_;
};

class DeviceSnapshots : public ::testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    if (GetParam() == Backend::cuda && !device::current_cuda_device()) GTEST_SKIP() << device::cuda_absent_reason();
  }
};
INSTANTIATE_TEST_SUITE_P(Of, DeviceSnapshots, ::testing::Values(Backend::gpu, Backend::cuda), [](const auto& one) {
  return std::string(one.param == Backend::gpu ? "a_double" : "a_cuda_device");
});

// Every version is what the arrays were at its cut, whatever the stream writes afterwards, wherever it is restored to.
TEST_P(DeviceSnapshots, HaveTheMemoryAsItWasAtTheStreamsPoint) {
  for (const bool fenced : {false, true}) {
    OnDevice on(GetParam());
    constexpr std::size_t kBytes = 100 * kZone + 1004;  // a short zone, of which a digest is a word and a part of one
    std::vector<std::byte> on_gpu = bytes_of(1, kBytes), small = bytes_of(2, 40);
    std::byte* const there = on.array(on_gpu);
    std::byte* const tiny = on.array(small);
    Pages pages(16 * kZone);
    on.store().protect(0, there, kBytes, {.zone = kZone}).value();
    on.store().protect(1, pages.data(), pages.bytes(), {.zone = kZone}).value();
    on.store().protect(2, tiny, small.size(), {.zone = kZone}).value();

    std::mt19937_64 random(7);
    std::map<Version, std::array<std::vector<std::byte>, 3>> expected;
    std::vector<std::vector<std::byte>> in_flight;
    in_flight.reserve(100);
    std::optional<Snapshot> last;
    for (Version version = 0; version < 8; ++version) {
      for (int i = 0; i < 5; ++i) {
        const std::size_t at = random() % (kBytes - 64);
        in_flight.push_back(bytes_of(static_cast<Version>(random()), 64));
        if (fenced && last) last->before_write(0, on.stream()).value();
        on.write(there + at, in_flight.back());
        std::ranges::copy(in_flight.back(), on_gpu.begin() + static_cast<std::ptrdiff_t>(at));
      }
      if (version % 3 == 1) {
        in_flight.push_back(bytes_of(version, small.size()));
        if (fenced && last) last->before_write(2, on.stream()).value();
        on.write(tiny, in_flight.back());
        small = in_flight.back();
      }
      pages.data()[random() % pages.bytes()] ^= std::byte{1};
      last = on.take(version, {.full = version == 5, .fenced = fenced});
      expected[version] = {on_gpu, pages.copy(), small};
    }
    for (Version version = 0; version < 8; ++version) {
      std::vector<std::byte> got(kBytes), got_pages(pages.bytes()), got_small(small.size());
      const std::array<Target, 3> targets{Target{0, got.data(), got.size()},
                                          Target{1, got_pages.data(), got_pages.size()},
                                          Target{2, got_small.data(), got_small.size()}};
      const auto restored = on.store().restore(version, targets, {.keep = true});
      ASSERT_TRUE(restored) << restored.error().message;
      EXPECT_TRUE(got == expected[version][0]) << version;
      EXPECT_TRUE(got_pages == expected[version][1]) << version;
      EXPECT_TRUE(got_small == expected[version][2]) << version;
    }
    on.finish();
  }
}

// Only what was written is stored, and what was restored is clean against its version.
TEST_P(DeviceSnapshots, StoreWhatWasWritten) {
  for (const Track track : {Track::automatic, Track::digest, Track::declared}) {
    OnDevice on(GetParam(), {.device = 64 * kMiB, .host = 0, .disk = 0, .chunk = 256 * kKiB});
    constexpr std::size_t kBytes = 4096 * kZone;
    const std::vector<std::byte> before = bytes_of(1, kBytes);
    std::byte* const there = on.array(before);
    on.store().protect(0, there, kBytes, {.zone = kZone, .track = track}).value();
    const auto stored_zones = [&](Version version) {
      const std::uint64_t gathered = on.store().snapshot_stats().bytes_gathered;
      on.take(version).wait("ephemeral").value();
      return (on.store().snapshot_stats().bytes_gathered - gathered) / kZone;
    };
    const std::vector<std::byte> other = bytes_of(9, 16);
    const auto write = [&](std::size_t zone) {
      on.write(there + zone * kZone, other);
      on.finish();
      if (track == Track::declared) on.store().touch(0, zone * kZone, 16).value();
    };
    EXPECT_EQ(stored_zones(0), 4096u);
    EXPECT_EQ(stored_zones(1), 0u);
    write(3);
    write(40);
    EXPECT_EQ(stored_zones(2), 2u);
    EXPECT_EQ(on.store().info(2).value().leans_on, (std::vector<Version>{0}));

    on.store().restore(0, {{0, there, kBytes}}, {.keep = true}).value();
    EXPECT_TRUE(on.rig().get(there, kBytes) == before);
    write(5);
    EXPECT_EQ(stored_zones(3), 1u);
    on.store().restore(2, {{0, there, kBytes}}, {.keep = true, .have = 3}).value();
    EXPECT_EQ(stored_zones(4), 0u);
    EXPECT_TRUE(stored(on.store(), 4, 0) == stored(on.store(), 2, 0));
    EXPECT_TRUE(stored(on.store(), 0, 0) == before);
  }
}

// Into arrays on the GPU: their own, others of the same size, and such that begin in the middle of anything.
TEST_P(DeviceSnapshots, ReachOtherArrays) {
  OnDevice on(GetParam(), {.device = 4 * kMiB, .host = 64 * kMiB, .disk = 0, .chunk = 256 * kKiB});
  constexpr std::size_t kLong = 1500 * kZone + 1004, kShort = 3000;
  std::array<std::vector<std::byte>, 2> first{bytes_of(1, kLong), bytes_of(2, kShort)}, second = first;
  std::byte* const a = on.array(first[0]);
  std::byte* const b = on.array(first[1]);
  on.store().protect(0, a, kLong, {.zone = kZone}).value();
  on.store().protect(1, b, kShort, {.zone = kZone}).value();
  on.take(0).wait("ephemeral").value();
  std::ranges::copy(bytes_of(3, 100), second[0].begin() + 700 * kZone);
  std::ranges::copy(bytes_of(4, 4), second[0].end() - 4);
  std::ranges::copy(bytes_of(5, 1), second[1].end() - 1);
  on.rig().put(a, second[0].data(), kLong);
  on.rig().put(b, second[1].data(), kShort);
  on.take(1).wait("ephemeral").value();
  const std::vector<std::byte> none(kLong + 64);
  for (const std::size_t shift : {0, 16, 4}) {
    std::byte* const to_a = on.array(none) + shift;
    std::byte* const to_b = on.array(none) + shift;
    const std::array<Target, 2> targets{Target{1, to_b, kShort}, Target{0, to_a, kLong}};
    const auto expect = [&](const std::array<std::vector<std::byte>, 2>& wanted) {
      EXPECT_TRUE(on.rig().get(to_a, kLong) == wanted[0]) << shift;
      EXPECT_TRUE(on.rig().get(to_b, kShort) == wanted[1]) << shift;
      EXPECT_TRUE(on.rig().get(to_a + kLong, 4) == std::vector<std::byte>(4)) << "nothing is written behind it";
    };
    on.store().restore(0, targets, {.keep = true, .stream = on.stream()}).value();
    expect(first);
    on.store().restore(1, targets, {.keep = true, .have = 0}).value();
    expect(second);
    on.store().restore(0, targets, {.keep = true, .have = 1}).value();
    expect(first);
  }
  on.finish();
}

// More than the device cache has is copied piece by piece, while the stream waits, or until the fence.
TEST_P(DeviceSnapshots, NeedNoRoomForAllOfIt) {
  for (const bool fenced : {false, true}) {
    OnDevice on(GetParam(), {.device = 256 * kKiB, .host = 16 * kMiB, .disk = 0});
    constexpr std::size_t kBytes = 512 * kZone;
    std::vector<std::byte> before = bytes_of(1, kBytes), after = bytes_of(2, kBytes);
    std::byte* const there = on.array(before);
    on.store().protect(0, there, kBytes, {.zone = kZone}).value();
    const Snapshot first = on.take(0, {.fenced = fenced});
    first.before_write(0, on.stream()).value();
    on.write(there, after);
    const Snapshot second = on.take(1, {.fenced = fenced});
    first.wait("copied").value();
    EXPECT_TRUE(stored(on.store(), 0, 0) == before);
    EXPECT_TRUE(stored(on.store(), 1, 0) == after);
    second.wait("ephemeral").value();
  }
}

TEST_P(DeviceSnapshots, RefuseByName) {
  OnDevice on(GetParam());
  std::byte* const there = on.array(bytes_of(1, 2 * kZone));
  for (const Track track : {Track::faults, Track::scan}) {
    const auto refused = on.store().protect(0, there, kZone, {.zone = kZone, .track = track});
    EXPECT_EQ(code_of(refused), Errc::unsupported);
    EXPECT_NE(refused.error().message.find("no page protection"), std::string::npos);
  }
  EXPECT_EQ(code_of(on.store().protect(0, there + 8, kZone, {.zone = kZone})), Errc::unsupported);
  EXPECT_EQ(code_of(on.store().protect(0, there, kZone, {.zone = 2 * kMiB})), Errc::invalid_argument);
  EXPECT_EQ(code_of(on.store().unprotect(0)), Errc::invalid_argument);
}

// A cut whose pieces find no room fails by name, and the next one stores everything.
TEST_P(DeviceSnapshots, FailWithoutRoom) {
  OnDevice on(GetParam(), {.device = 256 * kKiB, .host = 0, .disk = 0});
  const std::vector<std::byte> bytes = bytes_of(1, 16 * kZone);
  std::byte* const there = on.array(bytes);
  on.store().protect(0, there, bytes.size(), {.zone = kZone}).value();
  std::optional<Hog> hog(std::in_place, on.store(), 192 * kKiB + 48 * kKiB);
  bool stop = true;
  const auto refused = on.store().snapshot(0, {.interrupted = [&] { return stop; }, .stream = on.stream()});
  EXPECT_TRUE(code_of(refused) == Errc::timed_out || code_of(refused) == Errc::no_space) << refused.error().message;
  hog->end();
  on.take(0).wait("ephemeral").value();
  EXPECT_TRUE(stored(on.store(), 0, 0) == bytes);
}

// Also of memory on the host, whose writes had been looked for already.
TEST_P(DeviceSnapshots, ThatFailHideNoWriteToHostMemory) {
  OnDevice on(GetParam(), {.device = 256 * kKiB, .host = 0, .disk = 0});
  std::vector<std::byte> bytes = bytes_of(1, 8 * kZone);
  std::byte* const there = on.array(bytes);
  Pages pages(4 * kZone);
  on.store().protect(0, there, bytes.size(), {.zone = kZone}).value();
  on.store().protect(1, pages.data(), pages.bytes(), {.zone = kZone, .track = Track::digest}).value();
  on.take(0).wait("ephemeral").value();
  pages.data()[kZone + 5] ^= std::byte{1};
  bytes = bytes_of(2, 8 * kZone);
  on.write(there, bytes);
  on.finish();
  std::optional<Hog> hog(std::in_place, on.store(), 176 * kKiB);
  const auto refused = on.store().snapshot(1, {.interrupted = [] { return true; }, .stream = on.stream()});
  ASSERT_FALSE(refused) << "there was room";
  hog->end();
  on.take(2).wait("ephemeral").value();
  EXPECT_TRUE(stored(on.store(), 2, 1) == pages.copy());
  EXPECT_TRUE(stored(on.store(), 2, 0) == bytes);
}

// What a cut stores is known when it is taken, however far behind the stream is, and what is stored whole is copied.
TEST_P(DeviceSnapshots, OfWhatIsDeclaredOrWholeNeedNoPause) {
  for (const Track track : {Track::declared, Track::everything}) {
    OnDevice on(GetParam(), {.device = 16 * kMiB, .host = 0, .disk = 0});
    constexpr std::size_t kZones = 16;
    std::vector<std::byte> now = bytes_of(1, kZones * kZone);
    std::byte* const there = on.array(now);
    on.store().protect(0, there, now.size(), {.zone = kZone, .track = track}).value();
    device::Device& device = *on.rig().seams().device;
    const device::StreamId other = device.create_stream().value();
    std::vector<std::vector<std::byte>> in_flight, expected;
    in_flight.reserve(2 * kZones);
    for (Version version = 0; version < static_cast<Version>(kZones); ++version) {
      const std::size_t at = static_cast<std::size_t>(version * 7) % kZones * kZone;
      in_flight.push_back(bytes_of(100 + version, kZone));
      const bool whole = track == Track::everything && version > 0;  // it was copied before snapshot() returned
      on.write(there + at, in_flight.back(), whole && version % 2 == 1 ? other : on.stream());
      if (whole) on.finish();
      std::ranges::copy(in_flight.back(), now.begin() + static_cast<std::ptrdiff_t>(at));
      if (track == Track::declared) on.store().touch(0, at, kZone).value();
      on.take(version);
      expected.push_back(now);
      if (track == Track::everything) {  // by another stream, at once
        in_flight.push_back(bytes_of(200 + version, kZone));
        on.write(there + at, in_flight.back(), other);
        on.finish();
        std::ranges::copy(in_flight.back(), now.begin() + static_cast<std::ptrdiff_t>(at));
      }
    }
    for (Version version = 0; version < static_cast<Version>(kZones); ++version)
      EXPECT_TRUE(stored(on.store(), version, 0) == expected[static_cast<std::size_t>(version)]) << version;
    on.finish();
    device.destroy_stream(other);
  }
}

// What is freed is no longer read: the driver knows.
TEST_P(DeviceSnapshots, OfFreedMemoryAreRefused) {
  OnDevice on(GetParam());
  device::Device& device = *on.rig().seams().device;
  std::byte* const there = device.allocate(8 * kMiB).value();
  on.store().protect(0, there, 8 * kMiB, {.zone = 64 * kKiB}).value();
  device.free(there, 8 * kMiB);
  EXPECT_EQ(code_of(on.store().snapshot(0)), Errc::lost);
  on.store().unprotect(0).value();
}

// A kernel that fails is told by name, and the next cut stores everything.
TEST(GpuSnapshotFailures, OfACopyAreTold) {
  OnDevice on(Backend::gpu, {.device = 4 * kMiB, .host = 0, .disk = 0});  // so that the store itself copies nothing
  const std::vector<std::byte> bytes = bytes_of(1, 16 * kZone);
  std::byte* const there = on.array(bytes);
  on.store().protect(0, there, bytes.size(), {.zone = kZone}).value();
  on.take(0).wait("ephemeral").value();
  on.rig().device().fail_nth_copy(1);
  EXPECT_FALSE(on.store().snapshot(1, {.stream = on.stream()}));
  const std::uint64_t gathered = on.store().snapshot_stats().bytes_gathered;
  on.take(2).wait("ephemeral").value();
  EXPECT_EQ(on.store().snapshot_stats().bytes_gathered - gathered, bytes.size());
  EXPECT_TRUE(stored(on.store(), 2, 0) == bytes);
}

/// Holds the thread that sums pieces, after it has begun to, and has a gather fail.
class HeldSums final : public doubles::ForwardDevice {
 public:
  using ForwardDevice::ForwardDevice;
  std::function<void()> at_gather = [] {};  // set while no cut is taken

  void hold() { set(true); }
  void release() { set(false); }
  void await_held() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return standing_; });
  }
  Result<void> zones(device::StreamId stream, const device::ZoneJob& job) override {
    if (std::holds_alternative<device::ChecksumZones>(job)) sums_ = true;
    if (std::holds_alternative<device::GatherZones>(job)) at_gather();
    return ForwardDevice::zones(stream, job);
  }
  Result<void> wait(device::EventId event) override {
    auto waited = ForwardDevice::wait(event);
    if (std::exchange(sums_, false)) {
      std::unique_lock lock(mutex_);
      standing_ = true;
      changed_.notify_all();
      changed_.wait(lock, [&] { return !held_; });
      standing_ = false;
    }
    return waited;
  }

 private:
  void set(bool held) {
    const std::lock_guard lock(mutex_);
    held_ = held;
    changed_.notify_all();
  }
  static thread_local bool sums_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false, standing_ = false;
};
thread_local bool HeldSums::sums_ = false;

// The thread that sums is at the first cut when the gather of the second fails, and the call for a third hears of it.
TEST(GpuSnapshotFailures, OfAGatherFailTheCutsUnderWay) {
  Rig rig(Backend::gpu, {.device = 4 * kMiB, .host = 0, .disk = 0});
  const auto held = std::make_shared<HeldSums>(rig.seams().device);
  rig.seams().device = held;
  Store& store = rig.store();
  const device::StreamId stream = held->create_stream().value();
  std::vector<std::byte> bytes = bytes_of(1, 16 * kZone);
  std::byte* const there = held->allocate(bytes.size()).value();
  const auto write = [&](int seed) {
    bytes = bytes_of(seed, bytes.size());
    rig.put(there, bytes.data(), bytes.size());
  };
  write(1);
  store.protect(0, there, bytes.size(), {.zone = kZone}).value();
  store.snapshot(0, {.stream = stream}).value().wait("ephemeral").value();
  write(2);
  held->hold();
  const Snapshot first = store.snapshot(1, {.stream = stream}).value();
  held->await_held();
  write(3);
  held->at_gather = [&] { rig.device().fail_nth_copy(1); };
  const auto second = store.snapshot(2, {.stream = stream});
  held->at_gather = [] {};
  EXPECT_FALSE(store.snapshot(3, {.stream = stream}));
  held->release();
  static_cast<void>(static_cast<bool>(first.wait("ephemeral")));
  if (second) static_cast<void>(static_cast<bool>(second->wait("ephemeral")));
  if (store.info(2)) {
    EXPECT_TRUE(stored(store, 2, 0) == bytes);
  }
  store.snapshot(4, {.stream = stream}).value().wait("ephemeral").value();
  EXPECT_TRUE(stored(store, 4, 0) == bytes);
  rig.end();
  held->free(there, bytes.size());
  held->destroy_stream(stream);
}

// Whichever copy or kernel fails, of a cut that is taken or of one before it that is still on its way: what is stored
// is what the memory was, and the cut after it stores all that is needed.
TEST(GpuSnapshotFailures, LeaveNoWrongVersion) {
  for (int nth = 1; nth <= 60; ++nth) {
    OnDevice on(Backend::gpu, {.device = 4 * kMiB, .host = 0, .disk = 0}, static_cast<std::uint64_t>(nth));
    std::vector<std::byte> bytes = bytes_of(1, 32 * kZone + 100);
    std::byte* const there = on.array(bytes);
    Pages pages(4 * kZone);
    on.store().protect(0, there, bytes.size(), {.zone = kZone}).value();
    on.store().protect(1, pages.data(), pages.bytes(), {.zone = kZone, .track = Track::digest}).value();
    std::map<Version, std::pair<std::vector<std::byte>, std::vector<std::byte>>> expected;
    on.take(0).wait("ephemeral").value();
    expected[0] = {bytes, pages.copy()};
    on.rig().device().fail_nth_copy(nth);
    std::vector<Snapshot> taken;
    const auto change = [&](Version version) {
      const std::size_t at = static_cast<std::size_t>(version) * 5 % 32 * kZone + 9;
      const std::vector<std::byte> fresh = bytes_of(100 + version, 64);
      static_cast<void>(static_cast<bool>(on.rig().seams().device->synchronize()));  // what failed is told elsewhere
      std::ranges::copy(fresh, there + at);  // the double's memory is the host's: no copy of a device that may fail
      std::ranges::copy(fresh, bytes.begin() + static_cast<std::ptrdiff_t>(at));
      pages.data()[static_cast<std::size_t>(version) * 3001 % pages.bytes()] ^= std::byte{1};
    };
    for (Version version = 1; version < 6; ++version) {
      change(version);
      auto made = on.store().snapshot(version, {.stream = on.stream()});
      if (made) taken.push_back(*made);
      if (made) expected[version] = {bytes, pages.copy()};
    }
    for (const Snapshot& one : taken) static_cast<void>(static_cast<bool>(one.wait("ephemeral")));
    on.rig().device().fail_nth_copy(UINT64_MAX);
    // The stream may tell of what failed only now, and no cut fails for ever.
    Version last = 6;
    for (bool done = false; !done; ++last) {
      ASSERT_LT(last, 12) << "nth " << nth;
      change(last);
      const auto made = on.store().snapshot(last, {.stream = on.stream()});
      if (made) expected[last] = {bytes, pages.copy()};
      done = made && made->wait("ephemeral");
    }
    for (const Version version : on.store().versions().value()) {
      ASSERT_TRUE(expected.contains(version)) << version << ", nth " << nth;
      std::vector<std::byte> got(bytes.size()), got_pages(pages.bytes());
      const std::array<Target, 2> targets{Target{0, got.data(), got.size()},
                                          Target{1, got_pages.data(), got_pages.size()}};
      const auto restored = on.store().restore(version, targets, {.keep = true});
      if (!restored) {  // a piece whose last copy failed
        EXPECT_EQ(restored.error().code, Errc::lost) << restored.error().message;
        EXPECT_NE(version, last - 1) << "nth " << nth;
        continue;
      }
      EXPECT_TRUE(got == expected[version].first) << version << ", nth " << nth;
      EXPECT_TRUE(got_pages == expected[version].second) << version << ", nth " << nth;
    }
  }
}

// Whichever of its threads it is that the system refuses.
TEST(SnapshotsWithoutThreads, AProtectionIsRefusedByNameAndChangesNothing) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs address space of its own for each thread";
#endif
  ::mallopt(M_ARENA_MAX, 1);  // an arena for each thread would want addresses too
  OnDevice on(Backend::gpu);
  const std::vector<std::byte> bytes = bytes_of(1, 8 * kZone);
  Pages pages(8 * kZone);
  const Target both[] = {{0, on.array(bytes), bytes.size()}, {1, pages.data(), pages.bytes()}};
  const auto engine = on.rig().engine().shared_from_this();
  int refused = 0;
  for (std::size_t threads = 0; threads < 20; ++threads) {
    const auto done = [&]() -> Result<void> {
      const FewThreads few(threads);
      const auto made = Snapshotter::make_for(engine, kZone, {});
      if (!made) return made.error();
      return Result<std::shared_ptr<Snapshotter>>(made).value()->protect(both, {});
    }();
    if (done) break;
    ++refused;
    EXPECT_EQ(done.error().code, Errc::out_of_memory) << done.error().message;
  }
  EXPECT_GT(refused, 3) << "as many as it has threads";
  on.take(1).wait("ephemeral").value();
  EXPECT_EQ(stored(on.store(), 1, 0), bytes);
  EXPECT_EQ(stored(on.store(), 1, 1), pages.copy());
}

}  // namespace
}  // namespace ebb::snapshots
