// Five gigabytes in one piece, and a hundred thousand versions, on doubles of a GPU (tests/python/test_gpu_large.py
// does both on a real one).
#include <atomic>
#include <gtest/gtest.h>
#include <thread>

#include "ledger.hpp"
#include "sizes.hpp"
#include "support.hpp"

namespace ebb::store {
namespace {

using namespace testing_support;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr Version kVersions = 10'000;  // a sanitizer looks for other things
#else
constexpr Version kVersions = 100'000;
#endif

/// Five gigabytes between two small regions. No byte of them exists: a ledger follows each one from the application
/// through caches, ring and file and back, at the planner's and the engines' own sizes and offsets. What is seen is
/// any size, offset or address that is cut to 32 bits (or to 31) on the way, and any byte that goes astray: it is then
/// not where the ledger must have it. What is not seen is what a driver does with such sizes.
/// Once in chunks, as stores use them, and once each way in a single copy of five gigabytes.
class FiveGigabytes : public ::testing::TestWithParam<std::uint64_t> {
 protected:
  static constexpr std::size_t kSmall = 1000, kBig = 5'000'000'003, kEnd = 77;

  struct Field {
    Nowhere before{kSmall}, big{kBig}, after{kEnd};
    std::vector<Source> sources() const {
      return {{0, before.data(), kSmall}, {1, big.data(), kBig}, {2, after.data(), kEnd}};
    }
    std::vector<Target> targets() const {
      return {{0, before.data(), kSmall}, {1, big.data(), kBig}, {2, after.data(), kEnd}};
    }
  };
  // The application's kernels wrote `version` there.
  void compute(const Field& field, Version version) {
    const std::uint64_t first = static_cast<std::uint64_t>(version + 1) << 40;
    ledger->write(address_of(field.before.data()), kSmall, first);
    ledger->write(address_of(field.big.data()), kBig, first + (std::uint64_t{1} << 38));
    ledger->write(address_of(field.after.data()), kEnd, first + (std::uint64_t{1} << 39));
  }
  void expect(const Field& field, Version version) {
    const std::uint64_t first = static_cast<std::uint64_t>(version + 1) << 40;
    EXPECT_EQ(ledger->run_of(address_of(field.before.data()), first), kSmall) << "version " << version;
    EXPECT_EQ(ledger->run_of(address_of(field.big.data()), first + (std::uint64_t{1} << 38)), kBig)
        << "version " << version;
    EXPECT_EQ(ledger->run_of(address_of(field.after.data()), first + (std::uint64_t{1} << 39)), kEnd)
        << "version " << version;
  }
  std::unique_ptr<Rig> rig_of(Sizes sizes) {
    sizes.chunk = GetParam();
    auto rig = std::make_unique<Rig>(Backend::threads, sizes);
    rig->seams().device = std::make_shared<LedgerDevice>(ledger);
    rig->setup().host_arena = HostArena::direct;  // no page of its memory is there to be touched
    rig->setup().device_arena = DeviceArena::direct;
    rig->seams().files = std::make_shared<LedgerFiles>(ledger);
    return rig;
  }
  const std::shared_ptr<Ledger> ledger = std::make_shared<Ledger>();
  static constexpr StreamHandle kStream = 0;
};
INSTANTIATE_TEST_SUITE_P(Chunks, FiveGigabytes, ::testing::Values(4 * kMiB, 8 * kGiB));

TEST_P(FiveGigabytes, ComeFromTheDeviceAndFromTheHost) {
  const auto rig = rig_of({.device = 6 * kGiB, .host = 6 * kGiB, .disk = 0});
  Store& store = rig->store();
  const Field field, out;
  compute(field, 0);
  ASSERT_TRUE(store.checkpoint(0, field.sources(), {.stream = kStream}));
  ASSERT_TRUE(store.restore(0, out.targets(), {.keep = true, .stream = kStream}));
  expect(out, 0);
  ASSERT_TRUE(store.wait("host"));
  {
    // Whatever is on the device has to leave it.
    auto lent = store.reserve(1, std::vector<Source>{{0, nullptr, 6 * kGiB}}, {.timeout = Seconds(60)});
    ASSERT_TRUE(lent) << lent.error().message;
    ledger->write(address_of(lent->data()), lent->bytes(), 0);
  }
  const Field again;
  ASSERT_TRUE(store.restore(0, again.targets(), {.keep = true}));
  expect(again, 0);
  auto loan = store.borrow(0, {.keep = true});
  ASSERT_TRUE(loan) << loan.error().message;
  const std::uint64_t last = (std::uint64_t{1} << 40) + (std::uint64_t{1} << 39);
  EXPECT_EQ(ledger->run_of(address_of(loan->region(2).data()), last), kEnd);
}

TEST_P(FiveGigabytes, ComeFromTheDisk) {
  const auto rig = rig_of({.device = 6 * kGiB, .host = 6 * kGiB, .disk = 24 * kGiB});
  Store& store = rig->store();
  const Field field, out;
  constexpr Version n = 4;
  for (Version v = 0; v < n; ++v) {
    compute(field, v);
    ASSERT_TRUE(store.checkpoint(v, field.sources(), {.stream = kStream}));
    compute(field, 1000);  // overwritten
  }
  for (Version v = 0; v < n; ++v) {
    ASSERT_TRUE(store.restore(v, out.targets(), {.stream = kStream}));
    expect(out, v);
  }
}

TEST_P(FiveGigabytes, GoPastCachesThatAreTooSmall) {
  const auto rig = rig_of({.device = kMiB, .host = 0, .disk = 12 * kGiB});
  Store& store = rig->store();
  const Field field, out;
  for (const auto stream : {std::optional<StreamHandle>(), std::optional<StreamHandle>(kStream)}) {
    compute(field, 7);
    ASSERT_TRUE(store.checkpoint(7, field.sources(), {.stream = stream}));
    compute(field, 1000);
    ASSERT_TRUE(store.restore(7, out.targets(), {.stream = stream}));
    expect(out, 7);
  }
}

// Each version is written and restored in stream order, and each is its own: its number. At most four copies are made
// of each (to the device, to the host and back, to the application); and were all versions looked through for each of
// them, the test would not end in time.
TEST(ManyVersions, EachComesBackAndCostsNoMoreThanTheFirst) {
  Rig rig(Backend::gpu, {.device = 64 * kKiB, .host = 32 * kMiB, .disk = 0});
  for (auto& tier : rig.setup().machine.tiers) tier.granule = 256;
  Store& store = rig.store();
  History many = store.history("many");
  doubles::FakeDevice& device = rig.device();
  const StreamHandle on = device.create_stream().value();
  // The double's own thread yields between any two copies, which takes its time where others want the processor.
  device.hold();
  std::vector<Version> fields(kVersions), out(kVersions, -1);
  std::atomic<bool> ended = false;
  std::thread gpu([&] {
    while (!ended) {
      device.await_unfinished(1);
      device.run();
    }
  });
  const std::shared_ptr<void> ending(nullptr, [&](void*) {
    ended = true;
    device.copy(on, out.data(), fields.data(), 0).value();  // wakes it
    gpu.join();
    device.release();
    device.destroy_stream(on);
  });
  for (Version v = 0; v < kVersions; ++v) {
    Version& field = fields[static_cast<std::size_t>(v)];
    field = v;
    const auto written = many.checkpoint(v, {{0, &field, sizeof field}}, {.timeout = Seconds(60), .stream = on});
    ASSERT_TRUE(written) << v << ": " << written.error().message;
  }
  ASSERT_EQ(many.versions().value().size(), static_cast<std::size_t>(kVersions));
  for (Version v = kVersions; v-- > 0;) {
    const auto back = many.restore(v, {{0, &out[static_cast<std::size_t>(v)], sizeof(Version)}}, {.stream = on});
    ASSERT_TRUE(back) << v << ": " << back.error().message;
  }
  ASSERT_TRUE(device.synchronize());
  EXPECT_EQ(out, fields);
  EXPECT_TRUE(many.versions().value().empty());
  EXPECT_LE(device.copies(), 4u * static_cast<std::uint64_t>(kVersions));
}

}  // namespace
}  // namespace ebb::store
