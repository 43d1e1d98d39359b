// Calls in stream order, on the double of a GPU: streams of the application stop, and go on, on command.
#include <cerrno>
#include <future>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <thread>

#include "sizes.hpp"
#include "support.hpp"

namespace ebb::store {
namespace {

using namespace testing_support;

/// A store on the double of a GPU, and a stream of the application.
class StreamOrder : public ::testing::Test {
 protected:
  doubles::FakeDevice& device() { return rig.device(); }
  StreamHandle stream() { return device().create_stream().value(); }
  /// The application overwrites `to` in stream order.
  void overwrite(StreamHandle on, std::vector<std::byte>& to, const std::vector<std::byte>& with) {
    device().copy(on, to.data(), with.data(), to.size()).value();
  }
  Result<Future> checkpoint(Version v, const std::vector<std::byte>& from, StreamHandle on) {
    return store.checkpoint(v, {{0, from.data(), from.size()}}, {.stream = on});
  }
  Result<void> restore(Version v, std::vector<std::byte>& to, StreamHandle on) {
    return store.restore(v, {{0, to.data(), to.size()}}, {.stream = on});
  }
  Rig rig{Backend::gpu};
  Store& store = rig.store();
};

TEST_F(StreamOrder, ACheckpointDoesNotHoldUpTheHostAndIsCopiedBeforeItsSourceIsOverwritten) {
  const StreamHandle on = stream();
  std::vector<std::byte> field(kSize), first = bytes_of(1, kSize), second = bytes_of(2, kSize);
  device().hold();
  overwrite(on, field, first);  // computed on the stream, not there yet
  auto future = checkpoint(1, field, on);
  ASSERT_TRUE(future) << future.error().message;  // and yet nothing has been copied
  overwrite(on, field, second);
  EXPECT_EQ(device().unfinished(), 2u + kSize / rig.setup().machine.links[0].chunk);
  EXPECT_FALSE(future->done("device"));
  device().release();
  ASSERT_TRUE(store.wait("device"));
  expect_restored(store, 1, kSize);
}

TEST_F(StreamOrder, ARestoreOfWhatIsOnTheDeviceDoesNotHoldUpTheHost) {
  const StreamHandle on = stream();
  ASSERT_TRUE(write(store, 1, kSize));
  ASSERT_TRUE(store.wait("local"));
  std::vector<std::byte> out(kSize), after(kSize);
  device().hold();
  ASSERT_TRUE(restore(1, out, on));
  EXPECT_GE(device().unfinished(), 1u);
  overwrite(on, after, out);  // the application computes with it
  device().release();
  ASSERT_TRUE(device().synchronize());
  EXPECT_EQ(after, bytes_of(1, kSize));
  EXPECT_EQ(code_of(store.restore(1, {{0, out.data(), kSize}})), Errc::consumed);
}

TEST_F(StreamOrder, WhatIsOnTheDiskComesInStreamOrderToo) {
  const StreamHandle on = stream();
  const Version n = 40;  // several times what the caches hold
  std::vector<std::vector<std::byte>> fields;
  for (Version v = 0; v < n; ++v) {
    fields.push_back(bytes_of(v, kSize));
    ASSERT_TRUE(checkpoint(v, fields.back(), on));
  }
  std::vector<std::vector<std::byte>> out(n, std::vector<std::byte>(kSize));
  for (Version v = 0; v < n; ++v) ASSERT_TRUE(restore(v, out[static_cast<std::size_t>(v)], on));
  ASSERT_TRUE(device().synchronize());
  for (Version v = 0; v < n; ++v) EXPECT_EQ(out[static_cast<std::size_t>(v)], bytes_of(v, kSize)) << v;
}

TEST_F(StreamOrder, WhatIsStillBeingWrittenOnAStreamCanBeRestored) {
  const StreamHandle on = stream();
  const std::vector<std::byte> field = bytes_of(1, kSize);
  ASSERT_TRUE(checkpoint(1, field, on));
  std::vector<std::byte> out(kSize);
  ASSERT_TRUE(restore(1, out, on));
  ASSERT_TRUE(device().synchronize());
  EXPECT_EQ(out, field);
}

TEST_F(StreamOrder, TheLegacyStreamHasTwoNames) {
  std::vector<std::byte> field(kSize);
  const std::vector<std::byte> bytes = bytes_of(1, kSize);
  overwrite(device::kLegacyStream, field, bytes);
  ASSERT_TRUE(checkpoint(1, field, 0));
  std::vector<std::byte> out(kSize);
  ASSERT_TRUE(restore(1, out, 1));
  ASSERT_TRUE(device().synchronize());
  EXPECT_EQ(out, bytes);
}

TEST_F(StreamOrder, ACallWithoutAStreamComesAfterTheLegacyStream) {
  std::vector<std::byte> field(kSize);
  const std::vector<std::byte> bytes = bytes_of(1, kSize);
  overwrite(device::kLegacyStream, field, bytes);
  ASSERT_TRUE(store.checkpoint(1, {{0, field.data(), kSize}}));
  std::fill(field.begin(), field.end(), std::byte{0});
  expect_restored(store, 1, kSize);
}

TEST_F(StreamOrder, ACaptureIsRefusedByNameAndNothingIsLost) {
  const StreamHandle on = stream();
  const std::vector<std::byte> field = bytes_of(1, kSize);
  auto reserved = store.reserve(2, std::vector<Source>{{0, nullptr, kSize}});
  ASSERT_TRUE(reserved);
  device().set_capturing(on, true);
  for (const auto code : {code_of(checkpoint(1, field, on)), code_of(reserved->commit({.stream = on}))})
    EXPECT_EQ(code, Errc::unsupported);
  std::vector<std::byte> out(kSize);
  EXPECT_EQ(code_of(restore(1, out, on)), Errc::unsupported);
  device().set_capturing(on, false);
  ASSERT_TRUE(checkpoint(1, field, on));
  const std::vector<std::byte> bytes = bytes_of(2, kSize);
  device().copy(on, reserved->data(), bytes.data(), kSize).value();
  ASSERT_TRUE(reserved->commit({.stream = on})) << "the reservation outlived the refusal";
  expect_restored(store, 1, kSize);
  expect_restored(store, 2, kSize);
}

TEST_F(StreamOrder, WhatIsLentIsRefusedInACaptureTooAndNothingIsLost) {
  const StreamHandle on = stream();
  ASSERT_TRUE(write(store, 1, kSize));
  auto loan = store.borrow(1, {.keep = true});
  ASSERT_TRUE(loan);
  const std::vector<Source> regions{{0, nullptr, kSize}};
  device().set_capturing(on, true);
  for (const auto code : {code_of(loan->release(false, {.stream = on})), code_of(store.borrow(1, {.stream = on})),
                          code_of(store.reserve(2, regions, {.stream = on}))})
    ASSERT_EQ(code, Errc::unsupported);
  device().set_capturing(on, false);
  EXPECT_EQ(std::memcmp(loan->data(), bytes_of(1, kSize).data(), kSize), 0) << "it is still lent";
  EXPECT_TRUE(loan->release(true, {.stream = on}));
  EXPECT_EQ(store.versions(), std::vector<Version>{1}) << "nothing was consumed";
  EXPECT_TRUE(store.borrow(1, {.stream = on}));
  EXPECT_TRUE(store.reserve(2, regions, {.stream = on}));
}

TEST_F(StreamOrder, AReservationIsCommittedWhereItsStreamIs) {
  const StreamHandle on = stream();
  const std::vector<std::byte> bytes = bytes_of(7, kSize);
  auto reserved = store.reserve(7, std::vector<Source>{{0, nullptr, kSize}});
  ASSERT_TRUE(reserved);
  device().hold();
  device().copy(on, reserved->data(), bytes.data(), kSize).value();
  ASSERT_TRUE(reserved->commit({.stream = on}));
  EXPECT_EQ(device().unfinished(), 1u) << "the host did not wait";
  EXPECT_EQ(store.versions(), std::vector<Version>{7});
  device().release();
  expect_restored(store, 7, kSize);
}

TEST_F(StreamOrder, ALoansMemoryIsNotUsedAgainBeforeItsStreamHasReadIt) {
  const StreamHandle on = stream();
  const std::size_t whole = 256 * kKiB;  // the device cache
  ASSERT_TRUE(write(store, 1, whole));
  auto loan = store.borrow(1);
  ASSERT_TRUE(loan);
  std::vector<std::byte> seen(whole);
  device().hold();
  device().copy(on, seen.data(), loan->data(), whole).value();
  ASSERT_TRUE(loan->release(false, {.stream = on}));
  EXPECT_EQ(code_of(store.info(1)), Errc::consumed) << "it was given back at once";
  auto next = std::async(std::launch::async, [&] { return static_cast<bool>(write(store, 2, whole)); });
  device().await_unfinished(1);
  device().release();
  EXPECT_TRUE(next.get());
  ASSERT_TRUE(device().synchronize());
  EXPECT_EQ(seen, bytes_of(1, whole));
  expect_restored(store, 2, whole);
}

TEST_F(StreamOrder, HeldMemoryIsNotUsedAgainBeforeTheHandleGoes) {
  const StreamHandle on = stream();
  const std::size_t whole = 256 * kKiB;
  ASSERT_TRUE(write(store, 1, whole));
  {
    auto loan = store.borrow(1);
    ASSERT_TRUE(loan);
    ASSERT_TRUE(loan->release(false, {.stream = on, .hold = true}));
    ASSERT_TRUE(device().synchronize());
    const auto refused = store.reserve(2, std::vector<Source>{{0, nullptr, whole}});
    EXPECT_EQ(code_of(refused), Errc::no_space);
    EXPECT_EQ(std::memcmp(loan->data(), bytes_of(1, whole).data(), whole), 0);
  }
  EXPECT_TRUE(store.reserve(2, std::vector<Source>{{0, nullptr, whole}}));
}

TEST_F(StreamOrder, HeldMemoryStaysMappedAfterClose) {
  const StreamHandle on = stream();
  auto reserved = store.reserve(1, std::vector<Source>{{0, nullptr, kSize}});
  ASSERT_TRUE(reserved);
  const std::vector<std::byte> bytes = bytes_of(1, kSize);
  device().copy(on, reserved->data(), bytes.data(), kSize).value();
  ASSERT_TRUE(reserved->commit({.stream = on, .hold = true}));
  ASSERT_TRUE(store.close());
  EXPECT_EQ(std::memcmp(reserved->data(), bytes.data(), kSize), 0);
  EXPECT_GT(device().allocated(), 0u);
}

TEST_F(StreamOrder, WhatIsLentKeepsNoMoreThanTheDeviceCacheAfterClose) {
  ASSERT_TRUE(write(store, 1, kSize));
  ASSERT_TRUE(store.wait("local"));  // through the host cache and the staging ring
  const Loan loan = store.borrow(1).value();
  EXPECT_GT(device().pinned(), 0u);
  ASSERT_TRUE(store.close());
  EXPECT_EQ(device().pinned(), 0u);
  EXPECT_EQ(std::memcmp(loan.data(), bytes_of(1, kSize).data(), kSize), 0);
}

TEST_F(StreamOrder, ALoanReleasedAfterCloseStaysMappedUntilItsStreamHasReadIt) {
  for (const bool hold : {false, true}) {
    Rig rig(Backend::gpu);
    auto& device = rig.device();
    ASSERT_TRUE(write(rig.store(), 1, kSize));
    std::optional<Loan> loan = rig.store().borrow(1).value();
    ASSERT_TRUE(rig.store().close());
    const StreamHandle on = device.create_stream().value();
    std::vector<std::byte> seen(kSize);
    device.hold();
    device.copy(on, seen.data(), loan->data(), kSize).value();
    auto released = std::async(std::launch::async, [&] {
      const auto done = loan->release(false, {.stream = on, .hold = hold});
      loan.reset();
      return static_cast<bool>(done);
    });
    ASSERT_EQ(released.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout) << "it is still read";
    device.release();
    EXPECT_TRUE(released.get());
    EXPECT_EQ(seen, bytes_of(1, kSize));
    EXPECT_EQ(device.allocated(), 0u);
  }
}

TEST_F(StreamOrder, ALoanReleasedAfterCloseWaitsForNoOtherStream) {
  ASSERT_TRUE(write(store, 1, kSize));
  Loan loan = store.borrow(1).value();
  ASSERT_TRUE(store.close());
  const StreamHandle on = stream();
  device().refuse_nth_synchronize(1);  // as while another stream is being captured
  EXPECT_TRUE(loan.release(false, {.stream = on}));
  EXPECT_FALSE(device().synchronize()) << "the first that was asked for";
}

TEST_F(StreamOrder, AnAbandonedReservationIsWaitedFor) {
  const StreamHandle on = stream();
  const std::vector<std::byte> bytes = bytes_of(9, kSize);
  {
    auto reserved = store.reserve(1, std::vector<Source>{{0, nullptr, kSize}});
    ASSERT_TRUE(reserved);
    device().copy(on, reserved->data(), bytes.data(), kSize).value();
  }  // an exception, say; the double tells of memory given away under a copy
  EXPECT_EQ(device().unfinished(), 0u);
  ASSERT_TRUE(write(store, 1, kSize));
  expect_restored(store, 1, kSize);
}

TEST_F(StreamOrder, CloseWaitsUntilTheStreamsHaveReadAndWritten) {
  const StreamHandle on = stream();
  const std::vector<std::byte> field = bytes_of(1, kSize);
  device().hold();
  ASSERT_TRUE(checkpoint(1, field, on));
  auto closed = std::async(std::launch::async, [&] { return static_cast<bool>(store.close()); });
  EXPECT_EQ(closed.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  device().release();
  EXPECT_TRUE(closed.get());
  EXPECT_EQ(device().unfinished(), 0u);
}

TEST_F(StreamOrder, AFailureOnTheStreamIsTheFuturesError) {
  const StreamHandle on = stream();
  const std::vector<std::byte> field = bytes_of(1, kSize);
  device().hold();
  device().fail_nth_copy(1);
  auto future = checkpoint(1, field, on);
  ASSERT_TRUE(future);
  device().release();
  while (!future->error()) std::this_thread::yield();
  EXPECT_EQ(future->error()->code, Errc::lost);
  ASSERT_TRUE(checkpoint(1, field, on)) << "it can be written again";
  expect_restored(store, 1, kSize);
}

TEST_F(StreamOrder, ARefusedCopyIsTheCallsErrorAndNothingIsConsumed) {
  const StreamHandle on = stream();
  ASSERT_TRUE(write(store, 1, kSize));
  ASSERT_TRUE(store.wait("local"));
  std::vector<std::byte> out(kSize);
  device().refuse_nth_copy(1);
  EXPECT_EQ(code_of(restore(1, out, on)), Errc::lost);
  ASSERT_TRUE(restore(1, out, on)) << "it is still there";
  ASSERT_TRUE(device().synchronize());
  EXPECT_EQ(out, bytes_of(1, kSize));
  device().refuse_nth_copy(1);
  EXPECT_FALSE(checkpoint(2, out, on));
  ASSERT_TRUE(checkpoint(2, out, on));
  ASSERT_TRUE(device().synchronize());  // `out` ends here
}

TEST_F(StreamOrder, NothingAtAllIsReservedCommittedAndRestored) {
  const StreamHandle on = stream();
  for (Version v = 0; v < 20; ++v) {
    auto reserved = store.reserve(v, std::vector<Source>{{0, nullptr, 0}});
    ASSERT_TRUE(reserved);
    ASSERT_TRUE(reserved->commit({.stream = on}));
    ASSERT_TRUE(store.restore(v, {{0, nullptr, 0}}));
  }
}

TEST(StreamOrderOnDisk, ADiskThatFailsOnceIsTriedAgain) {
  Rig rig(Backend::gpu, {.device = 0, .host = 0});
  Store& store = rig.store();
  const StreamHandle on = rig.device().create_stream().value();
  const std::vector<std::byte> field = bytes_of(1, kSize);
  std::vector<std::byte> out(kSize);
  rig.files().fail_nth(doubles::FileCall::write, 1, EIO);
  ASSERT_TRUE(store.checkpoint(1, {{0, field.data(), kSize}}, {.stream = on}));
  rig.files().fail_nth(doubles::FileCall::read, 1, EIO);
  ASSERT_TRUE(store.restore(1, {{0, out.data(), kSize}}, {.stream = on}));
  ASSERT_TRUE(rig.device().synchronize());
  EXPECT_EQ(out, field);
}

TEST(StreamOrderOfMemory, AStreamIsRefusedByNameWhereThereIsNone) {
  Rig rig(Backend::threads);
  const std::vector<std::byte> field = bytes_of(1, kSize);
  const auto refused = rig.store().checkpoint(1, {{0, field.data(), kSize}}, {.stream = 5});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::unsupported);
  EXPECT_NE(refused.error().message.find("stream="), std::string::npos);
  EXPECT_TRUE(write(rig.store(), 1, kSize));
  const std::vector<Source> regions{{0, nullptr, kSize}};
  EXPECT_EQ(code_of(rig.store().borrow(1, {.stream = 5})), Errc::unsupported);
  EXPECT_EQ(code_of(rig.store().reserve(2, regions, {.stream = 5})), Errc::unsupported);
  expect_restored(rig.store(), 1, kSize);
}

// Random programs on two streams of the application: on the double everything is late and unordered between them.
class StreamPrograms : public ::testing::TestWithParam<std::tuple<Backend, int>> {};
INSTANTIATE_TEST_SUITE_P(Double, StreamPrograms,
                         ::testing::Combine(::testing::Values(Backend::gpu), ::testing::Range(1, 13)));
INSTANTIATE_TEST_SUITE_P(Cuda, StreamPrograms,
                         ::testing::Combine(::testing::Values(Backend::cuda), ::testing::Range(1, 13)));

TEST_P(StreamPrograms, GiveBackWhatWasWritten) {
  const Backend backend = std::get<0>(GetParam());
  if (backend == Backend::cuda && !device::current_cuda_device()) GTEST_SKIP() << device::cuda_absent_reason();
  const auto seed = static_cast<std::uint64_t>(std::get<1>(GetParam()));
  Rig rig(backend, {.device = 200 * kKiB, .host = 300 * kKiB}, seed);
  Store& store = rig.store();
  device::Device& device = *rig.seams().device;
  std::mt19937_64 random(seed);
  const auto below = [&](std::uint64_t n) { return random() % n; };
  const StreamHandle streams[2] = {device.create_stream().value(), device.create_stream().value()};
  // What the application's kernels read and write: each piece of work has memory of its own.
  constexpr int kSteps = 200;
  constexpr std::size_t kWork = 92 * kKiB;
  std::byte* const memory = device.allocate(kSteps * kWork).value();
  std::byte* const staged = device.allocate_host((kSteps + 1) * kWork).value();
  std::byte* const junk = staged + kSteps * kWork;
  std::fill_n(junk, kWork, std::byte{0x77});
  struct Expected {
    Version version;
    std::size_t size;
    const std::byte* out;
    const char* by;
  };
  std::vector<Expected> expected;
  std::map<Version, std::size_t> there;
  Version next = 0;
  for (int step = 0; step < kSteps; ++step) {
    const StreamHandle on = streams[below(2)];
    std::byte* const work = memory + static_cast<std::size_t>(step) * kWork;
    std::byte* const source = staged + static_cast<std::size_t>(step) * kWork;
    const auto compute = [&](std::byte* to, Version v, std::size_t size) {
      const auto bytes = bytes_of(v, size);
      std::copy(bytes.begin(), bytes.end(), source);
      device.copy(on, to, source, size).value();
    };
    const auto pick = [&] { return std::next(there.begin(), static_cast<std::ptrdiff_t>(below(there.size())))->first; };
    const std::uint64_t what = below(6);
    if (what < 2 || there.empty()) {
      const std::size_t size = 1 + below(80 * kKiB);
      compute(work, next, size);
      ASSERT_TRUE(store.checkpoint(next, {{0, work, size}}, {.stream = on}));
      if (below(2) == 0) device.copy(on, work, junk, size).value();  // overwritten at once
      there[next++] = size;
    } else if (what == 2) {
      const std::size_t size = 1 + below(60 * kKiB);
      auto reserved = store.reserve(next, std::vector<Source>{{0, nullptr, size}});
      if (!reserved) {
        ASSERT_EQ(reserved.error().code, Errc::no_space);
        continue;
      }
      compute(reserved->data(), next, size);
      if (below(4) == 0) continue;  // abandoned
      ASSERT_TRUE(reserved->commit({.stream = on}));
      there[next++] = size;
    } else if (what == 3) {
      const Version v = pick();
      const std::size_t size = there[v];
      auto loan = store.borrow(v);
      if (!loan) {
        ASSERT_EQ(loan.error().code, Errc::no_space) << loan.error().message;
        continue;
      }
      device.copy(on, work, loan->data(), size).value();
      const bool keep = below(3) == 0;
      ASSERT_TRUE(loan->release(keep, {.stream = on}));
      if (!keep) there.erase(v);
      expected.push_back({v, size, work, "borrow"});
    } else {
      const Version v = pick();
      const std::size_t size = there[v];
      const bool keep = below(3) == 0;
      ASSERT_TRUE(store.restore(v, {{0, work, size}}, {.keep = keep, .stream = on}));
      if (!keep) there.erase(v);
      expected.push_back({v, size, work, "restore"});
    }
  }
  ASSERT_TRUE(device.synchronize());
  for (const Expected& e : expected) {
    EXPECT_EQ(rig.get(e.out, e.size), bytes_of(e.version, e.size)) << e.by << " of version " << e.version;
  }
  ASSERT_TRUE(store.close());
  for (const StreamHandle on : streams) device.destroy_stream(on);
  device.free(memory, kSteps * kWork);
  device.free_host(staged, (kSteps + 1) * kWork);
}

}  // namespace
}  // namespace ebb::store
