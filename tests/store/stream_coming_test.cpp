// Restores in stream order of what is still on its way to the device, and calls whose bytes never come.
#include <chrono>
#include <future>
#include <gtest/gtest.h>

#include "support.hpp"

namespace ebb::store {
namespace {

using namespace testing_support;

constexpr std::size_t kChunk = 16 * kKiB;

/// A store on the double of a GPU. A version of some chunks is on the host alone, and then on its way up, as far as the
/// link takes at once (two chunks): the double is held.
class OnItsWay {
 public:
  explicit OnItsWay(std::size_t chunks)
      : out(chunks * kChunk),
        rig(Backend::gpu, {.device = 2 * out.size(), .host = 64 * out.size(), .disk = 0, .chunk = kChunk}) {
    for (Version v = 0; v < 6; ++v) EXPECT_TRUE(write(store, v, out.size()));
    EXPECT_TRUE(store.wait("host"));
    on = device().create_stream().value();
    device().hold();
    EXPECT_TRUE(store.start_prefetch());
    // Which of them the device still has is a matter of time; for one that it lacks, room is made within the call.
    const auto taken = [&] {
      const TierStats use = store.stats().tiers.at(0);
      return use.evictions + use.replicas;
    };
    for (const std::uint64_t before = taken(); taken() == before && version < 5;) {
      ++version;
      EXPECT_TRUE(store.hint({version}, true));
    }
    device().await_unfinished(2);
  }
  doubles::FakeDevice& device() { return rig.device(); }
  /// On a thread of its own, for it may block.
  std::future<Result<void>> restore() {
    return std::async(std::launch::async,
                      [this] { return store.restore(version, {{0, out.data(), out.size()}}, {.stream = on}); });
  }
  Version version = -1;
  std::vector<std::byte> out;
  Rig rig;
  Store& store = in_whole_copies(rig);
  StreamHandle on = 0;

 private:
  // So that a chunk is one copy, and copies can be counted.
  static Store& in_whole_copies(Rig& rig) {
    rig.setup().provision.reset();
    return rig.store();
  }
};

TEST(StreamComing, ARestoreReturnsWhenTheLastCopyToTheDeviceIsSubmitted) {
  OnItsWay o(2);
  std::future<Result<void>> call = o.restore();
  const bool returned = call.wait_for(std::chrono::seconds(60)) == std::future_status::ready;
  EXPECT_TRUE(returned) << "nothing has been copied, and nothing need have been";
  EXPECT_EQ(o.device().unfinished(), returned ? 4u : 2u);
  o.device().release();
  ASSERT_TRUE(call.get());
  ASSERT_TRUE(o.device().synchronize());
  EXPECT_EQ(o.out, bytes_of(o.version, o.out.size()));
  EXPECT_EQ(code_of(o.store.restore(o.version, {{0, o.out.data(), o.out.size()}})), Errc::consumed);
}

TEST(StreamComing, ARestoreWaitsUntilTheLastCopyIsSubmitted) {
  OnItsWay o(6);
  std::future<Result<void>> call = o.restore();
  o.device().await_unfinished(4);  // as much of it as the link has taken
  EXPECT_EQ(call.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  o.device().release();
  ASSERT_TRUE(call.get());
  ASSERT_TRUE(o.device().synchronize());
  EXPECT_EQ(o.out, bytes_of(o.version, o.out.size()));
}

TEST(StreamComing, ACopyThatFailsBeforeTheCallReturnsIsItsErrorAndLosesNothing) {
  OnItsWay o(6);
  std::future<Result<void>> call = o.restore();
  o.device().await_unfinished(4);
  o.device().fail_nth_copy(1);  // the next to be sent: of those that bring it, or of those that come after
  o.device().release();
  EXPECT_EQ(code_of(call.get()), Errc::lost);
  ASSERT_TRUE(o.device().synchronize());
  ASSERT_TRUE(o.store.restore(o.version, {{0, o.out.data(), o.out.size()}}));
  EXPECT_EQ(o.out, bytes_of(o.version, o.out.size()));
}

TEST(StreamComing, NothingWaitsForWhatIsRefused) {
  for (std::uint64_t n = 1; n <= 8; ++n) {
    OnItsWay o(6);
    std::future<Result<void>> call = o.restore();
    o.device().await_unfinished(4);
    o.device().refuse_nth_copy(n);
    o.device().release();
    const Result<void> restored = call.get();
    ASSERT_TRUE(o.device().synchronize());
    if (!restored) {
      EXPECT_EQ(restored.error().code, Errc::lost) << n;
      ASSERT_TRUE(o.store.restore(o.version, {{0, o.out.data(), o.out.size()}}));
    }
    EXPECT_EQ(o.out, bytes_of(o.version, o.out.size())) << n;
  }
}

TEST(StreamComing, AnAsynchronousRestoreRefusesACaptureOfTheLegacyStream) {
  Rig rig(Backend::gpu);
  std::vector<std::byte> out(kChunk);
  ASSERT_TRUE(write(rig.store(), 1, out.size()));
  const std::vector<Target> targets = {{0, out.data(), out.size()}};
  rig.device().set_capturing(device::kLegacyStream, true);
  EXPECT_EQ(code_of(rig.store().restore_async(1, targets)), Errc::unsupported);
  rig.device().set_capturing(device::kLegacyStream, false);
  auto future = rig.store().restore_async(1, targets);
  ASSERT_TRUE(future);
  ASSERT_TRUE(future->wait());
  EXPECT_EQ(out, bytes_of(1, out.size()));
}

TEST(StreamComing, AnAsynchronousRestoreComesAfterTheLegacyStreamAsItWasAtTheCall) {
  Rig rig(Backend::gpu);
  std::vector<std::byte> out(kChunk), before(kChunk, std::byte{1});
  ASSERT_TRUE(write(rig.store(), 1, out.size()));
  rig.device().hold();
  ASSERT_TRUE(rig.device().copy(device::kLegacyStream, out.data(), before.data(), out.size()));
  const std::vector<Target> targets = {{0, out.data(), out.size()}};
  auto future = rig.store().restore_async(1, targets);
  rig.device().release();
  ASSERT_TRUE(future->wait());
  EXPECT_EQ(out, bytes_of(1, out.size()));
}

TEST(StreamComing, AReservationWhoseStreamFailedIsLostByName) {
  Rig rig(Backend::gpu);
  Store& store = rig.store();
  const StreamHandle on = rig.device().create_stream().value();
  const std::vector<std::byte> bytes = bytes_of(1, kChunk);
  const std::vector<Source> regions = {{0, nullptr, kChunk}};
  auto reservation = store.reserve(1, regions);
  ASSERT_TRUE(reservation);
  rig.device().fail_nth_copy(1);
  ASSERT_TRUE(rig.device().copy(on, reservation->data(), bytes.data(), kChunk));
  ASSERT_TRUE(reservation->commit({.stream = on}));
  static_cast<void>(static_cast<bool>(rig.device().synchronize()));
  std::vector<std::byte> out(kChunk);
  const auto read = store.restore(1, {{0, out.data(), kChunk}});
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, Errc::lost) << read.error().message;
  ASSERT_TRUE(write(store, 1, kChunk)) << "the name is free again";
  expect_restored(store, 1, kChunk);
}

TEST(StreamComing, AFailedCheckpointIsLostByNameAlsoWithoutItsFuture) {
  Rig rig(Backend::gpu);
  Store& store = rig.store();
  const StreamHandle on = rig.device().create_stream().value();
  const std::vector<std::byte> bytes = bytes_of(1, kChunk);
  rig.device().fail_nth_copy(1);
  rig.device().hold();  // the call has returned when it fails
  ASSERT_TRUE(store.checkpoint(1, {{0, bytes.data(), kChunk}}, {.stream = on}));
  rig.device().release();
  static_cast<void>(static_cast<bool>(rig.device().synchronize()));
  std::vector<std::byte> out(kChunk);
  EXPECT_EQ(code_of(store.restore(1, {{0, out.data(), kChunk}})), Errc::lost);
  ASSERT_TRUE(store.drop(1));
  EXPECT_EQ(code_of(store.restore(1, {{0, out.data(), kChunk}})), Errc::unknown_version);
}

/// A store on the double of a GPU, which is held, and one version as a scratch slot: written and restored on a stream.
class ScratchSlot : public ::testing::Test {
 protected:
  ScratchSlot() { device().hold(); }
  doubles::FakeDevice& device() { return rig.device(); }
  Result<Future> checkpoint(const std::vector<std::byte>& from) {
    return store.checkpoint(0, {{0, from.data(), from.size()}}, {.stream = on});
  }
  Result<void> restore(std::vector<std::byte>& to, bool keep = false) {
    return store.restore(0, {{0, to.data(), to.size()}}, {.keep = keep, .stream = on});
  }
  Rig rig{Backend::gpu};
  Store& store = rig.store();
  StreamHandle on = device().create_stream().value();
};

TEST_F(ScratchSlot, ARestoreConsumesACheckpointThatIsStillOnTheStream) {
  const std::vector<std::byte> first = bytes_of(1, kChunk), second = bytes_of(2, kChunk);
  std::vector<std::byte> out(kChunk), again(kChunk), none(kChunk);
  auto future = checkpoint(first);
  ASSERT_TRUE(future);
  ASSERT_TRUE(restore(out));
  EXPECT_EQ(code_of(restore(none)), Errc::consumed);
  EXPECT_EQ(code_of(store.info(0)), Errc::consumed);
  EXPECT_TRUE(store.versions().value().empty());
  EXPECT_TRUE(store.wait("device")) << "nothing is left to wait for";
  ASSERT_TRUE(checkpoint(second)) << "its number is free";
  EXPECT_EQ(store.versions(), std::vector<Version>{0});
  ASSERT_TRUE(restore(again));
  EXPECT_GE(device().unfinished(), 4u) << "nothing has been copied yet";
  device().release();
  ASSERT_TRUE(device().synchronize());
  EXPECT_EQ(out, first);
  EXPECT_EQ(again, second);
  EXPECT_FALSE(future->error());
}

TEST_F(ScratchSlot, ALoopGoesOnBeyondWhatTheCachesHold) {
  constexpr int kRounds = 80;  // the caches hold 48
  std::vector<std::vector<std::byte>> in, out(kRounds, std::vector<std::byte>(kChunk));
  for (int i = 0; i < kRounds; ++i) in.push_back(bytes_of(i, kChunk));
  auto loop = std::async(std::launch::async, [&] {
    for (std::size_t i = 0; i < kRounds; ++i) {
      if (!checkpoint(in[i]) || !restore(out[i])) return false;
    }
    return true;
  });
  device().await_unfinished(64);
  device().release();
  EXPECT_TRUE(loop.get());
  ASSERT_TRUE(device().synchronize());
  EXPECT_EQ(out, in);
  EXPECT_TRUE(store.versions().value().empty());
  const auto used = [&] { return store.stats().tiers.at(0).used + store.stats().tiers.at(1).used; };
  while (used() > 0) std::this_thread::yield();
}

TEST_F(ScratchSlot, WhatIsKeptIsNotFree) {
  const std::vector<std::byte> field = bytes_of(1, kChunk);
  std::vector<std::byte> out(kChunk), again(kChunk);
  ASSERT_TRUE(checkpoint(field));
  ASSERT_TRUE(restore(out, true));
  EXPECT_EQ(code_of(checkpoint(field)), Errc::version_exists);
  ASSERT_TRUE(restore(again));
  device().release();
  ASSERT_TRUE(device().synchronize());
  EXPECT_EQ(out, field);
  EXPECT_EQ(again, field);
}

TEST_F(ScratchSlot, WhatFailsAfterItWasConsumedIsLostByName) {
  const std::vector<std::byte> field = bytes_of(1, kChunk);
  std::vector<std::byte> out(kChunk);
  device().fail_nth_copy(1);
  auto future = checkpoint(field);
  ASSERT_TRUE(future);
  ASSERT_TRUE(restore(out));
  device().release();
  static_cast<void>(static_cast<bool>(device().synchronize()));
  while (!future->error()) std::this_thread::yield();
  EXPECT_EQ(future->error()->code, Errc::lost);
  EXPECT_EQ(code_of(restore(out)), Errc::lost);
  ASSERT_TRUE(checkpoint(field)) << "it can be written again";
  ASSERT_TRUE(restore(out));
  ASSERT_TRUE(device().synchronize());
  EXPECT_EQ(out, field);
}

TEST_F(ScratchSlot, WhatFailsSaysNothingOfWhatWasWrittenAnew) {
  const std::vector<std::byte> field = bytes_of(1, kChunk);
  std::vector<std::byte> out(kChunk);
  device().fail_nth_copy(1);
  auto future = checkpoint(field);
  ASSERT_TRUE(future);
  ASSERT_TRUE(restore(out));
  ASSERT_TRUE(checkpoint(field));
  device().release();
  static_cast<void>(static_cast<bool>(device().synchronize()));
  while (!future->error()) std::this_thread::yield();
  EXPECT_EQ(future->error()->code, Errc::dropped);
  ASSERT_TRUE(restore(out));
  ASSERT_TRUE(device().synchronize());
  EXPECT_EQ(out, field);
  EXPECT_EQ(code_of(restore(out)), Errc::consumed);
}

}  // namespace
}  // namespace ebb::store
